import type { Hello, HelloAnswer } from '../../src/link/link.ts';

/** Returns the first hello of a branch that has nothing yet, with these differences. */
export function helloOf(more: Partial<Hello> = {}): Hello {
  return {
    instance: 'i',
    isStart: true,
    epoch: null,
    mark: 0,
    left: [],
    wantsSnapshot: false,
    line: 'l',
    isOwnLine: true,
    seq: 0,
    isLast: false,
    waiting: 0,
    oldestWaitingAt: null,
    rejected: 0,
    quarantined: 0,
    verdict: { level: 'green', finding: null },
    version: '0',
    forgotten: [],
    ...more,
  };
}

/** Returns the answer to the first hello of a branch, with these differences. */
export function helloAnswerOf(more: Partial<HelloAnswer> = {}): HelloAnswer {
  return {
    upTo: 0,
    isLineKnown: true,
    seqAfter: 0,
    leasedSeq: 0,
    published: 0,
    snapshotN: 0,
    hasCatalog: false,
    freshness: [],
    nowMs: 0,
    ordersStaleAfterMs: 0,
    ...more,
  };
}
