// The official TypeScript client, which starts a server by a command, or connects to
// one at a URL, and calls its tools one after the other. It prints one line of JSON for
// each.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { command, url, calls } = JSON.parse(process.argv[2]);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: {} });
await client.connect(
  url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: "inherit" }),
);
console.log(JSON.stringify((await client.listTools()).tools.map((tool) => tool.name)));
for (const { name, args } of calls) {
  console.log(JSON.stringify(await client.callTool({ name, arguments: args })));
}
await client.close();
