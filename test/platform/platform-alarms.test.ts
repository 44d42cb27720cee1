import { describe, expect, it } from 'vitest';
import { PlatformAlarms } from '../../src/app/parts.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Endpoint } from '../../src/platform/platform.ts';
import type { BlockRecord } from '../../src/platform/rate-budget.ts';

const error = new TillsyncError('blocked', 'The platform blocked the token.', { hint: 'Wait.' });

function setUp() {
  const up = new Map<string, string>();
  const own = new Map<Endpoint, BlockRecord>();
  const process = () =>
    new PlatformAlarms(
      { note: (key, trouble) => void (trouble === null ? up.delete(key) : up.set(key, trouble)) },
      (endpoint) => own.has(endpoint),
    );
  return { up, own, process };
}

describe('PlatformAlarms', () => {
  it('leaves a block to the flows that meet it', () => {
    const { up, process } = setUp();
    process().forbidden({ kind: 'block', endpoint: 'order.all', error });
    expect(up.size).toBe(0);
  });

  it('tells of a forbidden endpoint until that one answers, whatever others do', () => {
    const { up, own, process } = setUp();
    const first = process();
    own.set('webhook.put', {
      endpoint: 'webhook.put',
      durationMs: 1,
      endedMsAgo: 1,
      message: '',
      othersAnswered: true,
      endpointAnswered: false,
    });
    first.answered('webhook.put');
    first.forbidden({ kind: 'forbidden', endpoint: 'webhook.put', error });
    first.answered('order.all');
    expect([...up.keys()]).toEqual(['platform.forbidden']);
    process().answered('webhook.put');
    expect(up.size).toBe(0);
  });
});
