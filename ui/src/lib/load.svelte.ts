// Something of the service: what it is, or the problem.
import { get, Problem } from "./api";

export class Loading<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  busy = $state(false);
  #newest = 0;

  async run(ask: () => Promise<T>): Promise<void> {
    const mine = ++this.#newest;
    this.busy = true;
    try {
      const value = await ask();
      // What was asked for later stays.
      if (mine === this.#newest) {
        this.value = value;
        this.problem = null;
      }
    } catch (error) {
      if (mine === this.#newest) {
        this.problem = error instanceof Problem ? error : new Problem(0, "page", String(error));
      }
    } finally {
      if (mine === this.#newest) this.busy = false;
    }
  }
}

// A list that comes in pages: those that were asked for, one behind the other.
export class Pages<P extends { next: string | null }, T> extends Loading<P> {
  #earlier = $state.raw<T[]>([]);
  #turns = 0;
  readonly #itemsOf: (page: P) => T[];

  constructor(itemsOf: (page: P) => T[]) {
    super();
    this.#itemsOf = itemsOf;
  }

  get items(): T[] {
    return this.value === null ? [] : [...this.#earlier, ...this.#itemsOf(this.value)];
  }

  begin(path: string): Promise<void> {
    return this.#turn(path, () => []);
  }

  more(): void {
    const next = this.value?.next;
    if (next) void this.#turn(next, () => this.items);
  }

  // What is there counts as earlier when the next page is, not before: else it would be there twice.
  #turn(path: string, before: () => T[]): Promise<void> {
    const mine = ++this.#turns;
    return this.run(async () => {
      const page = await get<P>(path);
      if (mine === this.#turns) this.#earlier = before();
      return page;
    });
  }
}
