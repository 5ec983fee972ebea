// prompts yields the user's messages: the prompt, and then each line of stdin if the
// user sends later messages.
import { createInterface } from 'node:readline';

export async function* prompts() {
  yield process.env.PROMPT;
  if (process.env.LATER) yield* createInterface({ input: process.stdin });
}
