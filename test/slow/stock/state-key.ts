import { createHash } from 'node:crypto';
import type { SmallWorld } from './small-worlds.ts';
import type { World } from './world.ts';

/** Returns a hash of what decides the further course. Of times, versions and feed numbers, only the order is hashed. */
export function stateKey(
  world: World,
  of: SmallWorld,
  look: (sql: string) => unknown[][],
  isOpen: boolean,
): string {
  const { orders, events, pos, counts, call, done, platform, names, inbox, last } = world;
  const ranks = { seq: new Set<number>([0]), version: new Set<number>([0]), time: new Set<string>() };
  const tag = (kind: 'seq' | 'version', value: unknown) => {
    if (value === null) return null;
    ranks[kind].add(Number(value));
    return { [kind]: Number(value) };
  };
  const time = (value: unknown) => {
    ranks.time.add(String(value));
    return { time: String(value) };
  };
  // Returns the rows of a query. Its first `seqs` columns are feed numbers, and the next `versions` ones are versions.
  const rows = (sql: string, seqs: number, versions: number) =>
    look(sql).map((row) =>
      row.map((value, n) =>
        n < seqs ? tag('seq', value) : n < seqs + versions ? tag('version', value) : value,
      ),
    );
  const state: unknown[] = [
    rows(
      `SELECT counted_seq, confirmed_seq, call_seq, counted_version, sku, subsidiary_id,
           counted_qty, believed_qty, wanted_qty, expected_qty, ordered_qty, is_moved, call_qty, dirty,
           call_id IS NULL, counted_version = change_id, given_up FROM _stock_ledger`,
      3,
      1,
    ),
    rows('SELECT confirmed_seq, sku, subsidiary_id, believed_qty FROM _stock_beliefs', 1, 0),
    rows(
      `SELECT l.seq, t.seq, l.first_seq, t.booked_version, l.order_id, takes, is_unplaced, is_stale, places, t.sku,
           t.subsidiary_id, t.qty, t.is_first, t.held_until_ms IS NULL,
           t.placed_ms <= coalesce((SELECT confirmed_ms FROM _stock_beliefs k
             WHERE k.sku = t.sku AND k.subsidiary_id = t.subsidiary_id), 0)
         FROM _ledger_orders l LEFT JOIN _stock_steps t USING (order_id) ORDER BY l.order_id, t.seq, t.sku, t.subsidiary_id, t.part`,
      3,
      1,
    ),
    rows(
      `SELECT as_of_seq, sent_as_of_seq, version, refused_since, body, state, sent_qty, target, held_guard
         FROM _outbox WHERE state IN ('pending', 'sending', 'rejected') ORDER BY change_id`,
      2,
      2,
    ),
    rows('SELECT seq, edited_seq, order_id, branch, waits_since IS NULL, without FROM _order_acks', 2, 0),
    rows('SELECT version, kind, subject, field, standing FROM _wanted', 0, 1),
    ...[platform, names, orders, world.safety, world.store],
  ];
  const live = new Set(look('SELECT counted_version FROM _stock_ledger').map(([version]) => version));
  for (const [version] of look("SELECT version FROM _outbox WHERE state IN ('pending', 'sending')")) {
    live.add(version);
  }
  state.push(
    Object.entries(counts)
      .filter(([version]) => live.has(Number(version)))
      .map(([, count]) => count),
  );
  const pace = Object.values(pos).map(({ read, owed, ...each }) => ({
    ...each,
    owed: Object.entries(owed).map(([id, { seq, uncounted }]) => [id, tag('seq', seq), uncounted]),
    unread: events.filter(({ seq }) => seq > read).map(({ id, takes, seq }) => [id, takes, tag('seq', seq)]),
  }));
  state.push(pace);
  if (of.budget.insert) {
    state.push(
      last,
      inbox.map(({ handedAt, ...each }) => [each, time(handedAt)]),
    );
    const overs =
      look(`SELECT CAST(name AS INTEGER), CAST(substr(name, instr(name, '-') + 1) AS INTEGER), first_at
      FROM _seen WHERE kind = 'hand-over'`);
    state.push(overs.map(([first, end, at]) => [tag('version', first), tag('version', end), time(at)]));
    if (inbox.length > 0) {
      state.push(look('SELECT observed_at FROM order_events ORDER BY seq').map(([at]) => time(at)));
    }
  }
  if (of.budget.note) {
    const { noted } = world;
    const at = (ms: unknown) => time(String(ms).padStart(15, '0'));
    state.push(noted && [{ ...noted, atMs: 0 }, at(noted.atMs)]);
    state.push(look('SELECT counted_ms, handed_ms FROM _stock_ledger').map((row) => row.map(at)));
    state.push(look('SELECT booked_ms FROM _stock_steps ORDER BY order_id, seq').map((row) => row.map(at)));
    const waiting = `SELECT coalesce(counted_at, strftime('%Y-%m-%dT%H:%M:%fZ', handed_ms / 1000.0, 'unixepoch')),
        strftime('%Y-%m-%dT%H:%M:%fZ', handed_ms / 1000.0, 'unixepoch') FROM _outbox WHERE state IN ('pending', 'sending', 'done', 'rejected')
      ORDER BY version`;
    const ms = (value: unknown) => at(Date.parse(String(value)));
    state.push(look(waiting).map((row) => row.map(ms)));
    state.push(look('SELECT observed_at FROM order_events ORDER BY seq').map((row) => row.map(ms)));
  }
  if (of.budget.wait) {
    const longAgo = new Date(world.nowMs - 90 * 24 * 3_600_000).toISOString();
    state.push(look('SELECT order_id, updated_at FROM orders').map(([id, at]) => [id, String(at) < longAgo]));
    state.push(
      look(`SELECT t.held_until_ms <= c.counted_ms, t.held_until_ms FROM _stock_steps t
        LEFT JOIN _stock_ledger c USING (sku, subsidiary_id) ORDER BY t.order_id, t.seq`).map(
        ([isIn, until]) => [isIn, until === null || Number(until) <= world.nowMs],
      ),
    );
  }
  if (isOpen) {
    const own = done.filter(
      (name) => !/^(hear|read|ack|send|claim|apply|settle|look|release|drop|hand in)/.test(name),
    );
    state.push(own.sort(), call?.isApplied);
  }
  const places = {
    seq: ranked(ranks.seq),
    version: ranked(ranks.version),
    time: ranked(ranks.time),
  };
  const text = JSON.stringify(state, (name, value: unknown) => {
    if (name === 'createdAt') return undefined;
    return name in places && typeof value !== 'object' ? places[name as 'seq'].get(value as number) : value;
  });
  return createHash('sha1').update(text).digest('base64');
}

function ranked<T extends string | number>(values: Set<T>): Map<T, number> {
  const sorted = [...values].sort((one, other) => (one < other ? -1 : 1));
  return new Map(sorted.map((value, rank) => [value, rank]));
}
