"""The REST API: operations as a table, from which both the routes and the OpenAPI document are made."""
