// Lets a test control a client: it reads one order per line, and prints any number of
// reports, one per line. The last report of an order is "returned" or "threw".
import { createInterface } from "node:readline";

export async function obey(connect) {
  const { actions, close } = await connect(process.argv[2]);
  const say = (order, what, value) =>
    process.stdout.write(JSON.stringify({ order, what, value }) + "\n");
  const lines = createInterface({ input: process.stdin });
  lines.on("line", async (line) => {
    const { order, action, input } = JSON.parse(line);
    try {
      const value = await actions[action](input, (what, value) => say(order, what, value));
      say(order, "returned", value);
    } catch (e) {
      say(order, "threw", { name: e.constructor.name, code: e.code, message: e.message });
    }
  });
  lines.on("close", async () => {
    await close();
    process.exit(0);
  });
  say(0, "ready");
}
