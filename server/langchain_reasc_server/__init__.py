"""``reasc serve``: any model behind OpenAI's chat API, with answers that are voted on."""

import importlib.util

from langchain_reasc.exceptions import missing_extra

for _package in ("starlette", "uvicorn", "prometheus_client", "langchain_openai"):
    if importlib.util.find_spec(_package) is None:
        raise missing_extra("serve", _package.replace("_", "-"))
