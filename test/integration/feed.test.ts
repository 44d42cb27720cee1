import { mkdirSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
beforeEach(async () => {
  place = await openWorkplace(61);
});
afterEach(() => place.close());

interface FeedPage {
  events: { seq: number; order: { orderId: string } }[];
}

async function feedAfter(url: string, seq: number): Promise<{ status: number; page: FeedPage }> {
  const answer = await fetch(`${url}/v1/orders?after=${seq}&limit=500`);
  return { status: answer.status, page: (await answer.json()) as FeedPage };
}

const known = () => new Set(place.mirrorRows().map(({ order_id }) => order_id));
const arrived = (ids: string[]) => until('the orders are here', () => ids.every((id) => known().has(id)));

function moveAway(...databases: string[]): void {
  const aside = path.join(place.directory, `aside-${databases.join('-')}`);
  mkdirSync(aside, { recursive: true });
  for (const name of readdirSync(place.storage)) {
    if (!databases.some((database) => name.startsWith(database))) continue;
    renameSync(path.join(place.storage, name), path.join(aside, name));
  }
}

describe('a POS that keeps its place in the feed', () => {
  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'misses no order when the mirror is made anew after %s',
    async (signal) => {
      const { control } = place.sandbox;
      const first = await place.run();
      const ids = [1, 2, 3].map(() => control.createOrder().internalOrderId);
      await arrived(ids);
      const read = (await feedAfter(first.localUrl, 0)).page.events;
      const place1 = Math.max(...read.map(({ seq }) => seq));
      await first.end(signal);
      // `doctor` advises to move a damaged mirror away and to start tillsync.
      writeFileSync(path.join(place.storage, 'mirror.db'), 'rubbish '.repeat(1_000));
      moveAway('mirror.db');
      ids.push(control.createOrder().internalOrderId);

      const second = await place.run();
      await arrived(ids);
      const { status, page } = await feedAfter(second.localUrl, place1);
      expect(status).toBe(200);
      expect(new Set(page.events.map(({ order }) => order.orderId))).toEqual(new Set(ids));
      const place2 = Math.max(...page.events.map(({ seq }) => seq));
      expect(Math.min(...page.events.map(({ seq }) => seq))).toBeGreaterThan(place1);
      expect(await second.end('SIGTERM')).toBe(0);

      // Without any stored state tillsync cannot know the last number, and says so to a POS that asks from its old one.
      moveAway('mirror.db', 'state.db');
      place.env.TILLSYNC_REFRESH_TOKEN = place.sandbox.issueTokens().refreshToken;
      const third = await place.run();
      await arrived(ids);
      const ahead = await feedAfter(third.localUrl, place2);
      expect(ahead.status).toBe(400);
      expect(JSON.stringify(ahead.page)).toContain('made anew');
      expect(await third.end('SIGTERM')).toBe(0);
    },
  );
});
