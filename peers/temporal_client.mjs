// Temporal's TypeScript client, with a conversation by docs/reference/wire.md: `node temporal_client.mjs ADDRESS QUEUE ID`.
import { Client, Connection } from "@temporalio/client";

const [address, taskQueue, workflowId] = process.argv.slice(2);
const client = new Client({ connection: await Connection.connect({ address }) });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const options = { taskQueue, workflowId, workflowTaskTimeout: "5s" };
const handle = await client.workflow.start("Conversation", {
  ...options,
  args: [{ agent: "clerk", message: "refund", keep_open: 60 }],
});
const waits = async () => {
  for (let tries = 0; tries < 300; tries++) {
    const status = await handle.query("status");
    if (status.state === "awaiting_approval") return status.waiting[0].call_id;
    await sleep(100);
  }
  throw new Error("it does not wait for an approval");
};
await handle.signal("approve", { call_id: await waits() });
while ((await handle.query("status")).state !== "idle") await sleep(100);
const accepted = await handle.executeUpdate("message", { args: [{ text: "refund" }] });
await handle.executeUpdate("deny", { args: [{ call_id: await waits(), reason: "Not twice" }] });
let refused = "";
await handle.executeUpdate("approve", { args: [{ call_id: "nobody" }] }).catch((failure) => {
  refused = failure.cause?.type ?? failure.message;
});
await handle.executeUpdate("close", { args: [{}] });
const outcome = await handle.result();
console.log(JSON.stringify({ accepted, refused, outcome }));
process.exit(0);
