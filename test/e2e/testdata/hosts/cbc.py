# A host program as the CodeBuddy Agent SDK for Python makes it: cbc.py CLI PROMPT
import asyncio
import dataclasses
import json
import sys

from codebuddy_agent_sdk import CodeBuddyAgentOptions, query


async def main(cli, prompt):
    options = CodeBuddyAgentOptions(codebuddy_code_path=cli, model="mock-model", permission_mode="bypassPermissions")
    async for message in query(prompt=prompt, options=options):
        body = {"class": type(message).__name__, **dataclasses.asdict(message)}
        print(json.dumps(body, sort_keys=True, default=str), flush=True)


asyncio.run(main(*sys.argv[1:]))
