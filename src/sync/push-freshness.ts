import type { ChangeKind } from '../domain/change/change.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { FreshnessBoard, FreshnessState } from '../domain/health/freshness.ts';

const SUBJECT = 'outbox.push';

interface Trouble {
  state: FreshnessState;
  message: string;
}

/** How sending fares, told of both kinds of changes as one: well only when neither is in trouble. */
export class PushFreshness {
  readonly #board: FreshnessBoard;
  readonly #troubles = new Map<ChangeKind, Trouble>();

  constructor(board: FreshnessBoard) {
    this.#board = board;
  }

  /** The platform answered a call for each of its items. */
  answered(kind: ChangeKind): void {
    this.#troubles.delete(kind);
    if (this.#troubles.size === 0) this.#board.ok(SUBJECT);
  }

  failed(kind: ChangeKind, error: unknown): void {
    const { code, message, hint } = asTillsyncError(error);
    if (code === 'aborted') return;
    const state = code === 'auth-required' ? 'locked-out' : code === 'blocked' ? 'blocked' : 'failing';
    this.#tell(kind, { state, message: [message, hint].filter(Boolean).join(' ') });
  }

  /** Changes wait that nobody may send before a person acts. */
  lockedOut(kind: ChangeKind): void {
    const message =
      'Changes wait until the platform has been given new tokens. Hand them in with: {tillsync} auth set';
    this.#tell(kind, { state: 'locked-out', message });
  }

  /** Nothing of the kind waits any more, so nothing of it is in trouble. */
  idle(kind: ChangeKind): void {
    if (this.#troubles.delete(kind) && this.#troubles.size === 0) this.#board.report(SUBJECT, 'ok', '');
  }

  #tell(kind: ChangeKind, trouble: Trouble): void {
    const before = this.#troubles.get(kind);
    this.#troubles.set(kind, trouble);
    // Only a call is a try; that a person is still waited for is no news.
    if (trouble.state === 'locked-out' && before?.state === 'locked-out') return;
    this.#board.report(SUBJECT, trouble.state, trouble.message);
  }
}
