import type { ErrorCode } from '../../domain/errors.ts';
import type { ImportReport } from '../../domain/order/order-intake.ts';
import type { ExtraSpellings } from '../../domain/order/spelling-tree.ts';

/** What the import's worker thread is started with. */
export interface ImportTask {
  path: string;
  body: Uint8Array<ArrayBuffer>;
  spellings: ExtraSpellings;
  listPath: string;
  observedAtMs: number;
  asOfSeq: number;
  /** Memory of the WriteGate. */
  gate: SharedArrayBuffer;
}

export type ImportMessage =
  | { kind: 'progress'; done: number; total: number }
  | { kind: 'report'; report: ImportReport }
  | { kind: 'error'; code: ErrorCode; message: string; hint: string | undefined };
