// A client with the TypeScript SDK, of `everturn mcp`: `node client.mjs ADDRESS`, or a command in its place.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [place, ...rest] = process.argv.slice(2);
const client = new Client({ name: "peer", version: "1" });
await client.connect(
  place.startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(place))
    : new StdioClientTransport({ command: place, args: rest, env: process.env }),
);
const { tools } = await client.listTools();
const result = await client.callTool({ name: "clerk", arguments: { message: "Hi" } });
const begun = await client.callTool({
  name: "start",
  arguments: { agent: "clerk", message: "Hi", conversation_id: "a" },
});
console.log(
  JSON.stringify({
    version: client.getServerVersion().version,
    tools: tools.map((tool) => tool.name),
    result: result.structuredContent,
    begun: begun.structuredContent,
  }),
);
await client.close();
