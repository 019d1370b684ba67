# The worker. Agents are mounted or copied to /app/agents and named in EVERTURN_AGENTS.
ARG PYTHON_VERSION=3.11.13

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /venv
# First what changes seldom: the dependencies, by their hashes. A lock file names all of them; pip would look for others
# where one asks for another's extra.
COPY requirements-worker.lock ./
RUN /venv/bin/pip install --no-deps --require-hashes --requirement requirements-worker.lock
# Then what your own agents import: deploy/agents.txt, by `make lock-agents`. With the above, so that they fit together.
COPY deploy/agents.lock deploy/agents.lock
RUN /venv/bin/pip install --no-deps --require-hashes --requirement requirements-worker.lock --requirement deploy/agents.lock \
 && /venv/bin/pip check
COPY pyproject.toml README.md LICENSE ./
COPY everturn everturn
COPY examples examples
RUN /venv/bin/pip install --no-deps --no-build-isolation .

FROM python:${PYTHON_VERSION}-slim-bookworm
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --system --uid 10001 --no-create-home everturn
COPY --from=build /venv /venv
WORKDIR /app
COPY worker.py ./
USER everturn
# The exec form: the signal has to reach Python itself, which then drains.
STOPSIGNAL SIGTERM
CMD ["python", "worker.py"]
