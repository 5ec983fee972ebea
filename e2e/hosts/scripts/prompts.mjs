// prompts yields what the user says: the prompt, and then each line of stdin if the
// user is to come back later.
import { createInterface } from 'node:readline';

export async function* prompts() {
  yield process.env.PROMPT;
  if (process.env.LATER) yield* createInterface({ input: process.stdin });
}
