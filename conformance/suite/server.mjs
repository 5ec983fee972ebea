// A server of the TypeScript SDK with what the suite looks for. Its arguments are its address, and the scheme of
// the URIs of its resources.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const [address, scheme] = process.argv.slice(2);
const data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const text = (text) => ({ type: "text", text });
const image = { type: "image", data, mimeType: "image/png" };
const resource = (uri) => ({ type: "resource", resource: { uri, mimeType: "text/plain", text: "a resource" } });
const said = (text) => ({ role: "user", content: { type: "text", text } });

function server() {
  const s = new McpServer({ name: "typescript", version: "1" }, { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: "Use the TypeScript." });
  const tool = (name, act, inputSchema = {}) => s.registerTool(name, { description: name, inputSchema }, async (args, extra) => ({ content: await act(args, extra) }));
  tool("test_simple_text", () => [text("This is a simple text response for testing.")]);
  tool("test_image_content", () => [image]);
  tool("test_audio_content", () => [{ type: "audio", data: "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=", mimeType: "audio/wav" }]);
  tool("test_embedded_resource", () => [resource("test://embedded-resource")]);
  tool("test_multiple_content_types", () => [text("a text"), image, resource("test://mixed")]);
  tool("test_error_handling", () => { throw new Error("this tool always fails"); });
  tool("test_tool_with_logging", async (_, { sendNotification }) => {
    for (const data of ["begins", "works", "ends"]) await sendNotification({ method: "notifications/message", params: { level: "info", data } });
    return [text("logged")];
  });
  tool("test_tool_with_progress", async (_, { sendNotification, _meta }) => {
    const progressToken = _meta?.progressToken;
    for (const progress of [0, 50, 100]) await sendNotification({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
    return [text(String(progressToken))];
  });
  tool("test_sampling", async ({ prompt }) => {
    const { content } = await s.server.createMessage({ messages: [said(prompt)], maxTokens: 100 });
    return [text("LLM response: " + content.text)];
  }, { prompt: z.string() });
  tool("test_elicitation", async ({ message }) => {
    const answer = await s.server.elicitInput({ message, requestedSchema: { type: "object", properties: { username: { type: "string" } } } });
    return [text(JSON.stringify(answer))];
  }, { message: z.string() });
  const read = (as) => async (uri) => ({ contents: [{ uri: uri.href, ...as }] });
  s.registerResource("static-text", scheme + "://static-text", { mimeType: "text/plain" }, read({ mimeType: "text/plain", text: "a text" }));
  s.registerResource("static-binary", scheme + "://static-binary", { mimeType: "image/png" }, read({ mimeType: "image/png", blob: data }));
  s.registerResource("template", new ResourceTemplate(scheme + "://template/{id}/data", { list: undefined }), { mimeType: "application/json" },
    async (uri, { id }) => ({ contents: [{ uri: uri.href, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: "Data for ID: " + id }) }] }));
  const prompt = (name, messages, argsSchema) => s.registerPrompt(name, { description: name, argsSchema }, async (args) => ({ messages: messages(args) }));
  prompt("test_simple_prompt", () => [said("a prompt")]);
  prompt("test_prompt_with_arguments", ({ arg1, arg2 }) => [said(`arg1='${arg1}', arg2='${arg2}'`)], { arg1: z.string(), arg2: z.string() });
  prompt("test_prompt_with_embedded_resource", ({ resourceUri }) => [{ role: "user", content: resource(resourceUri) }, said("look")], { resourceUri: z.string() });
  prompt("test_prompt_with_image", () => [{ role: "user", content: image }, said("look")]);
  return s;
}

const sessions = new Map();
const [host, port] = address.split(":");
createServer(async (request, response) => {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport) });
    await server().connect(transport);
  }
  await transport.handleRequest(request, response);
}).listen(Number(port), host);
