"""The viewer: a page in the browser that shows frames in their volume, live or finished; its server and its parts.

Starlette and uvicorn (extra `view`) are needed by `app` and `web` alone.
"""
