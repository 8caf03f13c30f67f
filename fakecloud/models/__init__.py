"""The shapes of the REST API: frozen, strict, camelCase on the wire; the OpenAPI document is generated from them."""
