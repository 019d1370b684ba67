// A server with the TypeScript SDK, after its example with sessions: `node server.mjs PORT`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const transports = {};

createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const message = body ? JSON.parse(body) : undefined;
  const id = request.headers["mcp-session-id"];
  if (id && transports[id]) return transports[id].handleRequest(request, response, message);
  if (!id && message && isInitializeRequest(message)) {
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (session) => {
        transports[session] = transport;
      },
    });
    const server = new McpServer({ name: "peer", version: "1.0.0" });
    server.registerTool("pay", { description: "Pays.", inputSchema: { cents: z.number() } }, async ({ cents }) => ({
      content: [{ type: "text", text: `paid ${cents}` }],
    }));
    await server.connect(transport);
    return transport.handleRequest(request, response, message);
  }
  const error = { code: -32000, message: "Bad Request: No valid session ID provided" };
  response.writeHead(400, { "content-type": "application/json" });
  response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
}).listen(Number(process.argv[2]), "127.0.0.1");
