// Requests to the service that this page came from, with the token that was asked for once.
import type { components } from "./schema";

export type Doc<Name extends keyof components["schemas"]> = components["schemas"][Name];

const TOKEN = "stowplan.token";
// `./` is /ui/ wherever a proxy puts the service.
const ROOT = new URL("../", document.baseURI);

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly issues: Doc<"IssueDoc">[] = [],
  ) {
    super(detail);
  }
}

let askForToken: () => Promise<string> = () => Promise.reject(new Problem(401, "unauthorized", "a token is needed"));
let asked: Promise<string> | null = null;

export function onTokenNeeded(ask: () => Promise<string>): void {
  askForToken = ask;
}

export function forgetToken(): void {
  sessionStorage.removeItem(TOKEN);
}

export function hasToken(): boolean {
  return sessionStorage.getItem(TOKEN) !== null;
}

async function send(path: string, options: RequestInit): Promise<Response> {
  const token = sessionStorage.getItem(TOKEN);
  const headers = new Headers(options.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  let answer: Response;
  try {
    answer = await fetch(new URL(path.replace(/^\//, ""), ROOT), { ...options, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The service does not answer. Is it running?");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && sessionStorage.getItem(TOKEN) === token) {
    // Of several requests that are refused together one asks.
    asked ??= askForToken().finally(() => (asked = null));
    sessionStorage.setItem(TOKEN, await asked);
    return send(path, options);
  }
  if (answer.status === 401) return send(path, options);
  throw await problemOf(answer);
}

async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    const document = JSON.parse(text) as Doc<"ProblemDoc">;
    return new Problem(answer.status, document.code, document.detail, document.errors ?? []);
  } catch {
    // Of a proxy, say, that knows no problem details.
    return new Problem(answer.status, "http", `${answer.status} ${answer.statusText}`);
  }
}

export async function get<T>(path: string, options: RequestInit = {}): Promise<T> {
  return (await send(path, options)).json() as Promise<T>;
}

export async function text(path: string, options: RequestInit = {}): Promise<string> {
  return (await send(path, options)).text();
}

export async function post<T>(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const declared = body === undefined ? headers : { "Content-Type": "application/json", ...headers };
  const answer = await send(path, { method: "POST", headers: declared, body: JSON.stringify(body) });
  return answer.json() as Promise<T>;
}

// A picture as an address for <img>: that cannot send a header. Whoever asks for it lets it go with URL.revokeObjectURL.
export async function picture(path: string, body?: unknown): Promise<string> {
  const options: RequestInit =
    body === undefined
      ? {}
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return URL.createObjectURL(await (await send(path, options)).blob());
}

export interface ServerEvent {
  id: string;
  name: string;
  data: unknown;
}

// Events of a stream until it ends or is aborted. `EventSource` cannot send the token. A connection that breaks is made
// again behind the last event, at most `tries` times without a new one.
export async function* events(path: string, signal: AbortSignal, tries = 5): AsyncGenerator<ServerEvent> {
  let last = "";
  for (let left = tries; left > 0; left--) {
    try {
      const headers: Record<string, string> = last === "" ? {} : { "Last-Event-ID": last };
      const answer = await send(path, { headers, signal });
      if (answer.status === 204 || answer.body === null) return;
      for await (const event of parsed(answer.body)) {
        last = event.id;
        left = tries;
        yield event;
      }
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (left === 1 || (error instanceof Problem && error.status !== 0)) throw error;
      await new Promise((resume) => setTimeout(resume, 1000));
    }
  }
}

async function* parsed(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const fields = new Map(
          block.split("\n").map((line) => {
            const at = line.indexOf(":");
            return [line.slice(0, at), line.slice(at + 1).trimStart()] as const;
          }),
        );
        const data = fields.get("data");
        if (data !== undefined) {
          yield { id: fields.get("id") ?? "", name: fields.get("event") ?? "", data: JSON.parse(data) };
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

// Text as it comes, such as a log that is followed.
export async function* pieces(path: string, signal: AbortSignal): AsyncGenerator<string> {
  const answer = await send(path, { signal });
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
