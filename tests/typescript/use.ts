// What a program in TypeScript can write with the types that are made from the description of the server. It is checked
// by the compiler and never run.
import createClient from "openapi-fetch";

import type { components, paths } from "./whence";

type Message = components["schemas"]["Message"];

export async function remember(baseUrl: string, user_id: string, user_key: string): Promise<string[]> {
  const client = createClient<paths>({ baseUrl });
  const messages: Message[] = [{ sender_id: "ann", role: "user", timestamp: Date.now(), content: "I live in Lyon" }];
  const added = await client.POST("/memories/add", { body: { user_id, user_key, session_id: "chat:1", messages } });
  if (added.error) throw new Error(`${added.error.code}: ${added.error.detail}`);
  const position: number | null = added.data.position;
  const flushed = await client.POST("/memories/flush", { body: { user_id, user_key, session_id: "chat:1" } });
  const status: "extracted" | "no_extraction" | undefined = flushed.data?.status;
  const found = await client.POST("/memories/search", {
    body: { user_id, user_key, query: "Where do I live?", scope: ["all_user_memory"], top_k: 5 },
  });
  for (const result of found.data?.results ?? []) {
    const quote: string | null | undefined = result.provenance[0]?.quote;
    console.log(result.id, result.text, result.source_scope, result.resource_uri, quote, position, status);
  }
  // @ts-expect-error: there is no such scope
  await client.POST("/memories/search", { body: { user_id, user_key, query: "x", scope: ["everything"] } });
  // @ts-expect-error: a message needs a sender
  const wrong: Message = { role: "user", timestamp: 1, content: "x" };
  return [wrong, ...messages].map((message) => message.sender_id);
}
