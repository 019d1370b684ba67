"""The inbox: one page in the browser, where people follow conversations and decide. `everturn web` serves it."""
