// A client that supports only stdio and connects to the gate through mcp-remote,
// as configured in mcp.json. It makes the call itself, repeats it if the result asks for
// that, and prints the results, one line for each call.
import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { prompts } from './prompts.mjs';

const { command, args } = JSON.parse(readFileSync(`${process.env.HOME}/mcp.json`, 'utf8')).mcpServers.gate;
const client = new Client({ name: 'stdio-only', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));

async function call() {
  try {
    const { content } = await client.callTool({ name: process.env.TOOL, arguments: JSON.parse(process.env.ARGUMENTS) });
    return content.map((part) => part.text).join(' ');
  } catch (e) {
    return `error ${e.code}: ${e.message}`;
  }
}

for await (const _ of prompts()) {
  for (let left = Number(process.env.MAX_CALLS); left > 0; left--) {
    const text = await call();
    console.log(text.replaceAll('\n', ' '));
    if (/do not call/i.test(text) || !/again.*same arguments/i.test(text)) break;
  }
}
await client.close();
