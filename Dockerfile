# syntax=docker/dockerfile:1
# Two stages: the first has pip and hatchling, the second has neither. Both programs are in one image: `ccm-lb` and `fakecloud`.
FROM python:3.13.9-slim-bookworm AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY ccm_lb ccm_lb
COPY fakecloud fakecloud
# kubernetes is a million lines: byte-compiling all of it would triple the image.
RUN python -m venv /opt/ccm-lb \
 && /opt/ccm-lb/bin/pip install --no-cache-dir --no-compile --require-hashes -r requirements.lock \
 && /opt/ccm-lb/bin/pip install --no-cache-dir --no-compile --no-deps . \
 && /opt/ccm-lb/bin/pip uninstall -y pip

FROM python:3.13.9-slim-bookworm
COPY --from=build /opt/ccm-lb /opt/ccm-lb
ENV PATH=/opt/ccm-lb/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10258
ENTRYPOINT ["ccm-lb"]
CMD ["run"]
