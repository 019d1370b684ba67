"""What the model is told of a tool, from its signature and its docstring."""

import json

from pydantic import BaseModel

from everturn import tool


class Location(BaseModel):
    lat: float
    long: float


@tool
async def fetch_weather(location: Location) -> str:
    """Fetch the weather for a given location.

    Args:
        location: The location to fetch the weather for.
    """
    return "sunny"


@tool(name="fetch_data")
def read_file(path: str, directory: str | None = None) -> str:
    """Read the contents of a file.

    Args:
        path: The path to the file to read.
        directory: The directory to read the file from.
    """
    return "<file contents>"


def main() -> None:
    for function_tool in (fetch_weather, read_file):
        print(function_tool.name, "-", function_tool.description)
        print(json.dumps(function_tool.parameters, indent=2))


if __name__ == "__main__":
    main()
