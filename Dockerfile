# Base images by digest, so that each build uses the same bytes; docs/several-machines.md says how to renew.
ARG NODE_IMAGE=node:22-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c
ARG PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# The web pages' stylesheet and scripts, as package-lock.json pins them.
FROM ${NODE_IMAGE} AS assets
WORKDIR /build
COPY package.json package-lock.json ./
COPY .ci/npm .ci/assets .ci/
RUN bash .ci/assets --omit=dev

# The service in a virtual environment of its own. All that came from outside is checked by its hash.
FROM ${PYTHON_IMAGE} AS service
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/ requirements/
RUN python -m venv --without-pip /opt/keyturn \
    && pip --python /opt/keyturn/bin/python install --require-hashes -r requirements/run.txt \
    && pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY migrations/ migrations/
COPY connectors/ connectors/
COPY runbooks/ runbooks/
COPY bot/ bot/
COPY --from=assets /build/bot/web/static/vendor/ bot/web/static/vendor/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/keyturn/bin/python install --no-deps dist/*.whl

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Keyturn" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 keyturn \
    && useradd --system --uid 10001 --gid keyturn --home-dir /data --shell /usr/sbin/nologin keyturn \
    && install --directory --owner keyturn --group keyturn --mode 0700 /data /keys
COPY --from=service /opt/keyturn /opt/keyturn
ENV PATH=/opt/keyturn/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    KEYTURN_DATA=/data KEYTURN_POLICY=/data/policy KEYTURN_LISTEN=0.0.0.0 KEYTURN_PORT=8080
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["keyturn"]
CMD ["serve"]
