# syntax=docker/dockerfile:1
# Three stages: the first has pip and hatchling, the others have neither. Both programs are in one image: the last stage, which is built
# by default, starts the controller; `docker build --target fakecloud .` makes the same image start the cloud.
FROM python:3.13.9-slim-bookworm AS build
WORKDIR /src
# For strip: uvloop's library comes with 12 MB of debugging symbols.
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends binutils >/dev/null
COPY requirements.lock ./
# What is never imported goes: the generated models and APIs of the kubernetes client (a million lines), pygments' lexers (which rich needs
# for source code alone), sources of compiled modules, and every program but ours.
RUN python -m venv /opt/ccm-lb \
 && /opt/ccm-lb/bin/pip install --no-cache-dir --no-compile --require-hashes -r requirements.lock \
 && cd /opt/ccm-lb/lib/python3*/site-packages \
 && rm kubernetes/client/models/[a-z]*.py kubernetes/client/api/[a-z]*.py kubernetes/aio/client/models/[a-z]*.py kubernetes/aio/client/api/[a-z]*.py \
 && rm pygments/lexers/[a-z]*.py \
 && find . -name '*.so' -exec strip --strip-debug {} + \
 && find . -type d \( -name tests -o -name test \) -prune -exec rm -r {} + \
 && find . -type f \( -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' \) -delete
COPY pyproject.toml README.md LICENSE ./
COPY ccm_lb ccm_lb
COPY fakecloud fakecloud
# Compiled here, since a read-only root would compile at every start. Unchecked: the sources cannot change, so nobody looks at their dates.
RUN /opt/ccm-lb/bin/pip install --no-cache-dir --no-compile --no-deps . \
 && /opt/ccm-lb/bin/pip uninstall --yes --quiet pip \
 && find /opt/ccm-lb/bin -type f ! -name ccm-lb ! -name fakecloud -delete \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/ccm-lb/lib

FROM python:3.13.9-slim-bookworm AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ccm-lb" \
      org.opencontainers.image.description="A Kubernetes service (load-balancer) controller with ipMode, and a fake cloud" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# Python's own library comes without compiled files; only what is missing is compiled.
RUN python -m compileall -q --invalidation-mode unchecked-hash -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip|site-packages|dist-packages)/' \
    "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/ccm-lb /opt/ccm-lb
ENV PATH=/opt/ccm-lb/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532

FROM runtime AS fakecloud
EXPOSE 8780
ENTRYPOINT ["fakecloud"]
CMD ["serve"]

FROM runtime AS ccm-lb
EXPOSE 10258
ENTRYPOINT ["ccm-lb"]
CMD ["run"]
