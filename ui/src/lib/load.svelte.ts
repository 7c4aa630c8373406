// Something of the service: what it is, or the problem.
import { Problem } from "./api";

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
