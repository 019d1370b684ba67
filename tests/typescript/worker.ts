// Activities in TypeScript, as any worker of Temporal's has them: nothing in here knows of everturn.
import { Context } from '@temporalio/activity';
import { NativeConnection, Worker } from '@temporalio/worker';
import { operation, OperationError, service, serviceHandler } from 'nexus-rpc';

const [address, taskQueue, name] = process.argv.slice(2);

/** Renders page after page, and goes on where a worker before it stopped. */
async function render(book: { title: string; pages: number }) {
  const context = Context.current();
  let page: number = context.info.heartbeatDetails ?? 0;
  for (; page < book.pages; page++) {
    console.log(`${name} renders page ${page}`);
    context.heartbeat(page);
    await context.sleep(200);
  }
  return { title: book.title, pages: page, by: name, key: context.info.activityId };
}

async function add(a: number, b: number) {
  return a + b;
}

async function refund(order: string) {
  throw new RangeError(`There is no order ${order}.`);
}

const shop = service('Shop', {
  quote: operation<{ order: string; pages: number }, { order: string; cents: number; by: string }>(),
  cancel: operation<{ order: string }, string>(),
});

const desk = serviceHandler(shop, {
  async quote(_context, { order, pages }) {
    console.log(`${name} quotes ${order}`);
    return { order, cents: pages * 5, by: name };
  },
  async cancel(_context, { order }) {
    throw new OperationError('failed', `Order ${order} has left.`);
  },
});

const connection = await NativeConnection.connect({ address });
const activities = { render, add, refund };
const worker = await Worker.create({ connection, taskQueue, activities, nexusServices: [desk] });
console.log(`${name} is ready`);
await worker.run();
