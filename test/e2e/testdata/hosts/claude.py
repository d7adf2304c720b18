# A host program as the Claude Agent SDK for Python makes it: claude.py CLI PROMPT
import dataclasses
import json
import sys

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient


async def main(cli, prompt):
    options = ClaudeAgentOptions(cli_path=cli, permission_mode="bypassPermissions")
    async with ClaudeSDKClient(options) as client:
        await client.query(prompt)
        async for message in client.receive_response():
            body = {"class": type(message).__name__, **dataclasses.asdict(message)}
            print(json.dumps(body, sort_keys=True, default=str), flush=True)


anyio.run(main, *sys.argv[1:])
