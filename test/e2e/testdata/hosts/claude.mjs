// A host program as the Claude Agent SDK for TypeScript makes it:
// claude.mjs SDK CLI PROMPT
const [sdk, cli, prompt] = process.argv.slice(2);
const { query } = await import(sdk);
const options = { pathToClaudeCodeExecutable: cli, permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true };
for await (const message of query({ prompt, options })) console.log(JSON.stringify(message));
