// A client that knows stdio only and reaches the gate through mcp-remote, as
// mcp.json says. It makes the call itself, again if it is told to, and prints what
// it gets.
import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { command, args } = JSON.parse(readFileSync(`${process.env.HOME}/mcp.json`, 'utf8')).mcpServers.gate;
const client = new Client({ name: 'stdio-only', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
for (let calls = 1; ; calls++) {
  let text;
  try {
    const result = await client.callTool({ name: process.env.TOOL, arguments: JSON.parse(process.env.ARGUMENTS) });
    text = result.content.map((part) => part.text).join(' ');
  } catch (e) {
    text = `error ${e.code}: ${e.message}`;
  }
  console.log(text);
  if (calls === 12 || /do not call/i.test(text) || !/again.*same arguments/i.test(text)) break;
}
await client.close();
