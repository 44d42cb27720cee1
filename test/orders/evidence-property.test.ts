/** Tests src/orders/merging/merge.ts and src/orders/merging/held-callbacks.ts over all orders of arrival, in a real mirror. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';
import type { OrderObservation, OrderReading } from '../../src/orders/merging/order.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { replayOrder } from '../../src/orders/receiving/replay.ts';
import type { FakeClock } from '../support/fake-clock.ts';
import { runsOf } from '../support/seed.ts';
import {
  CONFIGURED,
  DOCUMENTED,
  EMPTY_LIST_NAMES,
  FIELD_NAMES,
  type Field,
  type Form,
  goesOnFrom,
  isStatus,
  type Known,
  type Line,
  type Said,
  type Says,
  STATUSES,
  say,
  type Version,
  waits,
  weightOf,
} from './evidence-oracle.ts';
import { heldNotifications, openTestMirror } from './open-test-mirror.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const SILENT_MS = 5 * MINUTE_MS;
const UNSETTLED_MS = 15 * MINUTE_MS;
const spellings = compileSpellings(CONFIGURED.spellings, undefined, CONFIGURED.statuses);

/** One thing that happens. `back`: how many versions ago the callback was made that arrives. */
type Arrival =
  | { kind: 'edit'; status: string; values: Record<Field, number>; lines: Line[]; form: Form }
  | { kind: 'callback'; back: number }
  | { kind: 'poll'; form: Form; during: number[] }
  | { kind: 'failure'; minutes: number };

const allFields = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<Record<Field, T>> =>
  fc.record(Object.fromEntries(FIELD_NAMES.map((field) => [field, of])) as Record<Field, fc.Arbitrary<T>>);
const line: fc.Arbitrary<Line> = fc.record({
  key: fc.constantFrom('P1', 'P2', 'P3'),
  amount: fc.integer({ min: 1, max: 3 }),
  price: fc.integer({ min: 1_000, max: 1_003 }),
  comment: fc.constantFrom('no salt', 'two forks'),
  option: fc.constantFrom('Garlic', 'Hot'),
});
const lines = fc.array(line, { minLength: 1, maxLength: 3 });
const says = (...often: Says[]) =>
  fc.constantFrom<Says>(...often, 'named', 'guessed', 'guessedRight', 'blank', 'absent');
const emptyName = fc.constantFrom(...EMPTY_LIST_NAMES);
const record: fc.Arbitrary<Form> = fc.record({
  fields: allFields(says('guessed')),
  status: fc.constantFrom('named', 'named', 'otherName', 'mapped', 'foreign', 'number', 'absent'),
  lines: fc.constantFrom('named', 'brief', 'guessed', 'titles', 'empty', 'absent'),
  emptyName,
});
const notification: fc.Arbitrary<Form> = fc.record({
  fields: allFields(says('named', 'named', 'named', 'named')),
  status: fc.constantFrom('named', 'named', 'named', 'named', 'named', 'mapped', 'foreign', 'absent'),
  lines: fc.constantFrom('named', 'named', 'named', 'named', 'guessed', 'titles', 'empty', 'absent'),
  emptyName: fc.constant('items'),
});
const WELL: Form = {
  fields: Object.fromEntries(FIELD_NAMES.map((field) => [field, 'named'])) as Form['fields'],
  status: 'named',
  lines: 'named',
  emptyName: 'items',
};
const edit = (status = fc.constantFrom(...STATUSES), form = notification) =>
  fc.record({
    kind: fc.constant('edit' as const),
    status,
    values: allFields(fc.integer({ min: 1, max: 3 })),
    lines,
    form,
  });
const callback = (back: fc.Arbitrary<number>) => fc.record({ kind: fc.constant('callback' as const), back });
const newest = callback(fc.constant(0));
const failure = (minutes: fc.Arbitrary<number>) =>
  fc.record({ kind: fc.constant('failure' as const), minutes });

const all = (...each: fc.Arbitrary<Arrival>[]): fc.Arbitrary<Arrival[]> => fc.tuple(...each);
const inTurn = (...parts: fc.Arbitrary<Arrival[]>[]): fc.Arbitrary<Arrival[]> =>
  fc.tuple(...parts).map((each) => each.flat());
const tells = (...statuses: string[]) => all(edit(fc.constantFrom(...statuses), fc.constant(WELL)), newest);
/** An end is said of an order that goes on, which may be one of an earlier day. */
const end = fc
  .tuple(tells('pending', 'inProcess', 'dispatched'), tells('payment-canceled', 'payment-canceled', 'refund'))
  .map((parts) => parts.flat());

const asked = (form: Form) =>
  all(
    fc.record({
      kind: fc.constant('poll' as const),
      form: fc.constant(form),
      during: fc.constant<number[]>([]),
    }),
  );
/** A poll says the very same before and after a callback comes late. */
const late = fc
  .tuple(tells('pending', 'inProcess'), tells('ready', 'cancel'), asked(WELL), all(callback(fc.constant(1))))
  .chain((parts) => asked(WELL).map((again) => [...parts.flat(), ...again]));

/** An order that counts as ended lives on while polls are silent, or one that lives is over. */
const silence: fc.Arbitrary<Arrival[]> = fc
  .record({
    known: fc.constantFrom('payment-canceled', 'cancel', 'inProcess', 'dispatched', 'refund'),
    first: fc.constantFrom('payment-approved', 'picker-pending', 'payment-canceled', 'refund'),
    second: fc.constantFrom('picker-pending', 'ready', 'dispatched', 'cancel', 'refund'),
    before: fc.boolean(),
    again: fc.constantFrom(0, 1, 2),
  })
  .chain(({ known, first, second, before, again }) => {
    const silent = all(failure(fc.constant(3)), failure(fc.constant(4)));
    const story = [tells(known), tells(first), tells(second), all(callback(fc.constant(again)))];
    return inTurn(...(before ? [silent, ...story] : [...story, silent]));
  });

const arrivals: fc.Arbitrary<Arrival[]> = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: fc.tuple(edit(), newest) },
      { weight: 2, arbitrary: fc.tuple(edit()) },
      { weight: 5, arbitrary: fc.tuple(callback(fc.integer({ min: 0, max: 5 }))) },
      {
        weight: 4,
        arbitrary: fc.tuple(
          fc.record({
            kind: fc.constant('poll' as const),
            form: fc.oneof({ weight: 3, arbitrary: record }, { weight: 1, arbitrary: fc.constant(WELL) }),
            during: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 2 }),
          }),
        ),
      },
      { weight: 2, arbitrary: fc.tuple(failure(fc.integer({ min: 1, max: 4 }))) },
      { weight: 1, arbitrary: silence },
      { weight: 1, arbitrary: end },
      { weight: 1, arbitrary: late },
    ),
    { minLength: 3, maxLength: 14 },
  )
  .map((all) => all.flat() as Arrival[]);

/** An order of the platform, and the mirror that hears of it. */
class World {
  readonly #mirror: Mirror;
  readonly #clock: FakeClock;
  readonly #id: string;
  readonly #createdAt: string;
  #truth!: Version;
  readonly #callbacks: Said[] = [];
  /** Texts of callbacks that were applied. */
  readonly #applied = new Set<string>();
  #waiting: Said[] = [];
  /** When each text began to wait. */
  readonly #heldMs = new Map<string, number>();
  #polledMs: number;
  readonly #known: Partial<Record<Field, Known>> = {};
  /** True if the known lines are those of a list by names of the document. */
  #isListDocumented = false;

  constructor(mirror: Mirror, clock: FakeClock, id: string, ageMs: number) {
    this.#mirror = mirror;
    this.#clock = clock;
    this.#id = id;
    this.#createdAt = new Date(clock.nowMs() - ageMs).toISOString();
    this.#polledMs = clock.nowMs();
  }

  get #order(): MirroredOrder | undefined {
    return this.#mirror.orders.get(this.#id);
  }

  async happens(arrival: Arrival): Promise<void> {
    await this.#clock.advance(1_000);
    if (arrival.kind === 'edit') this.#edits(arrival);
    else if (arrival.kind === 'callback') await this.#calls(arrival.back);
    else if (arrival.kind === 'failure') await this.#fails(arrival.minutes);
    else if (this.#callbacks.length > 0) await this.polls(arrival.form, arrival.during);
  }

  #edits({ status, values, lines: list, form }: Extract<Arrival, { kind: 'edit' }>): void {
    const texts = { deliveryType: 'delivery', storeExternalId: 'B', customerFirstName: 'Ana ' } as const;
    const value = (field: Field) => {
      if (field === 'deliveryType') return 'delivery';
      const isText = /^(store|customer|address)/.test(field);
      return isText
        ? `${texts[field as keyof typeof texts] ?? field}${values[field]}`
        : 1_000 * values[field];
    };
    const named = Object.fromEntries(FIELD_NAMES.map((field) => [field, value(field)]));
    this.#truth = { status, values: named as Version['values'], lines: list };
    this.#callbacks.push(say(this.#id, this.#createdAt, 'webhook', this.#truth, form));
  }

  async #calls(back: number): Promise<boolean> {
    const said = this.#callbacks[Math.max(0, this.#callbacks.length - 1 - back)];
    if (said === undefined) return false;
    const before = this.#order;
    const reading = readOrder(said.sent, spellings, 'webhook') as OrderReading;
    const observation: OrderObservation = {
      ...{ source: 'webhook', observedAtMs: this.#clock.nowMs(), raw: said.text, reading },
    };
    const [outcome] = await this.#mirror.save([{ kind: 'order', observation }]);
    const doesWait = this.#doesWait(before, said);
    expect(outcome === 'held', `${before?.status} → ${said.sent.status} waits`).toBe(doesWait);
    if (doesWait) {
      this.#waiting = this.#waiting.filter(({ text }) => text !== said.text);
      this.#waiting.push(said);
      this.#heldMs.set(said.text, this.#clock.nowMs());
      expect(this.#order).toEqual(before);
      return false;
    }
    const isDecided = said.status != null && waits(before?.status ?? null, said.status, this.#isOld(before));
    if (before !== undefined && isDecided) this.#waiting = [];
    this.#applied.add(said.text);
    this.#hasHeard(before, said);
    return outcome !== 'confirmed';
  }

  #doesWait(before: MirroredOrder | undefined, { status, text }: Said): boolean {
    if (before === undefined || status == null || !waits(before.status, status, this.#isOld(before)))
      return false;
    if (!this.#areSilent(this.#waiting) || this.#applied.has(text)) return true;
    return !goesOnFrom(before.status, this.#witnesses.at(-1)?.status, status);
  }

  /** Whether no poll succeeded for five minutes, or none settled for a quarter of an hour what waits. */
  #areSilent(waiting: readonly Said[]): boolean {
    const nowMs = this.#clock.nowMs();
    const since = Math.min(...waiting.map(({ text }) => this.#heldMs.get(text) ?? Infinity));
    return nowMs - this.#polledMs >= SILENT_MS || nowMs - since >= UNSETTLED_MS;
  }

  /** Callbacks that wait and are no repetitions. */
  get #witnesses(): Said[] {
    return this.#waiting.filter(({ text }) => !this.#applied.has(text));
  }

  #isOld(order: MirroredOrder | undefined): boolean {
    return order?.createdAt != null && this.#clock.nowMs() - Date.parse(order.createdAt) > DAY_MS;
  }

  async polls(form: Form, during: readonly number[]): Promise<void> {
    const { orders, health } = this.#mirror;
    const marks = {
      observedAtMs: this.#clock.nowMs(),
      asOfSeq: orders.newestSeq(),
      asOfHeldId: orders.newestHeldId(),
    };
    const said = say(this.#id, this.#createdAt, 'poll', this.#truth, form);
    const waited = this.#waiting.map(({ text }) => text);
    let isOvertaken = false;
    for (const back of during) {
      await this.#clock.advance(100);
      const text = this.#callbacks[Math.max(0, this.#callbacks.length - 1 - back)]?.text ?? '';
      if (await this.#calls(back)) isOvertaken = true;
      // A callback that waits anew waits for the next poll.
      if (this.#waiting.some((each) => each.text === text) && waited.includes(text))
        waited.splice(waited.indexOf(text), 1);
    }
    const before = this.#order;
    const body = new Uint8Array(Buffer.from(`{"success":true,"data":[${said.text}]}`));
    await this.#mirror.importAnswer(body, marks);
    health.ok('orders.poll');
    await health.flush();
    this.#polledMs = this.#clock.nowMs();
    if (isOvertaken) {
      expect(this.#order).toEqual(before);
      return;
    }
    if (said.status != null) this.#waiting = this.#waiting.filter(({ text }) => !waited.includes(text));
    this.#hasHeard(before, said);
    expect(this.#held.sort()).toEqual(this.#waiting.map(({ text }) => text).sort());
  }

  /** Texts of the callbacks that wait in the mirror. */
  get #held(): string[] {
    const held = heldNotifications(this.#mirror, this.#id);
    return held.filter(({ resolvedAt }) => resolvedAt === null).map(({ payload }) => payload);
  }

  async #fails(minutes: number): Promise<void> {
    const { health } = this.#mirror;
    await this.#clock.advance(minutes * MINUTE_MS);
    const before = this.#order;
    health.report('orders.poll', 'failing', 'The platform answers 500.', 'platform-error');
    await health.flush();
    const witnesses = this.#areSilent(this.#waiting) ? this.#witnesses : [];
    const at = witnesses.findIndex(
      ({ status }, i) => i > 0 && goesOnFrom(before?.status ?? null, witnesses[i - 1]?.status, status ?? ''),
    );
    const changed = await this.#mirror.judgeHeldAgain();
    expect(changed.includes(this.#id)).toBe(at !== -1);
    if (at === -1) expect(this.#order).toEqual(before);
    else this.#hasHeardAll(before as MirroredOrder, witnesses.slice(at));
  }

  /** Compares the order with what callbacks say that waited, of which the first is believed. */
  #hasHeardAll(before: MirroredOrder, [first, ...rest]: readonly Said[]): void {
    const believed = first ? [first] : [];
    const again: Said[] = [];
    for (const said of rest) {
      const doesWait = waits(believed.at(-1)?.status ?? null, said.status ?? '', this.#isOld(before));
      (doesWait ? again : believed).push(said);
    }
    this.#waiting = again;
    for (const { text } of believed) this.#applied.add(text);
    this.#hasHeard(before, ...believed);
  }

  /** Compares the order with what it was and what was said of it since, each of which was believed as a whole. */
  #hasHeard(before: MirroredOrder | undefined, ...all: readonly Said[]): void {
    const after = this.#order as MirroredOrder;
    for (const { values } of all) {
      for (const field of FIELD_NAMES) {
        const heard = values[field];
        const weight = this.#known[field]?.weight ?? 0;
        if (heard !== undefined && heard.weight >= weight) this.#known[field] = heard;
      }
    }
    for (const field of FIELD_NAMES) expect(after[field], field).toBe(this.#known[field]?.value ?? null);
    const known = before?.status ?? null;
    const said = all.findLast(({ status }) => status !== undefined);
    if (said?.status != null) expect(after.status).toBe(said.status);
    else if (isStatus(known) || said === undefined) expect(after.status).toBe(known);
    else expect(isStatus(after.status)).toBe(false);
    const [only, ...others] = all;
    if (only && others.length === 0) this.#hasHeardLines(before?.items ?? [], after.items, only);
    else for (const each of all) this.#isListDocumented = isDocumentedAfter(each, this.#isListDocumented);
  }

  #hasHeardLines(before: MirroredOrder['items'], after: MirroredOrder['items'], said: Said): void {
    const { lines: how, source, version } = said;
    const taken = (items: MirroredOrder['items']) =>
      items.map((item) => [item.productExternalId, item.productName, item.quantity]);
    const truth = version.lines.map(({ key, amount }) => [key, `Product ${key}`, amount]);
    if (how === 'named' || how === 'brief') {
      expect(taken(after)).toEqual(truth);
      this.#isListDocumented = true;
    } else if (how === 'empty' && (source === 'webhook' || before.length === 0)) {
      expect(after).toEqual([]);
      this.#isListDocumented = false;
    } else if (how === 'empty' || how === 'absent') expect(after).toEqual(before);
    else if (this.#isListDocumented) expect(taken(after)).toEqual(taken(before));
    if (how === 'named') {
      const parts = version.lines.map(({ price, comment, option }) => [price, comment, option]);
      expect(after.map(partsOf)).toEqual(parts);
    } else if (this.#isListDocumented) this.#keepsParts(before, after);
  }

  /** A part of a line that is the same as before never becomes worse known. */
  #keepsParts(before: MirroredOrder['items'], after: MirroredOrder['items']): void {
    const keyOf = (item: MirroredOrder['items'][number]) => `${item.productExternalId} ${item.quantity}`;
    const onlyOne = (items: MirroredOrder['items'], key: string) => {
      const [one, ...others] = items.filter((item) => keyOf(item) === key);
      return others.length === 0 ? one : undefined;
    };
    for (const item of after) {
      const known = onlyOne(before, keyOf(item));
      if (known === undefined || onlyOne(after, keyOf(item)) === undefined) continue;
      for (const [i, part] of partsOf(known).entries()) {
        const now = partsOf(item)[i];
        const isKept = weightOf(part) === DOCUMENTED ? now === part : weightOf(now) >= weightOf(part);
        expect(isKept, `${part} became ${now}`).toBe(true);
      }
    }
  }

  /** At rest: one more poll comes, and then the mirror is what the platform has, where the platform said it. */
  async rests(form: Form): Promise<void> {
    if (this.#callbacks.length === 0) return;
    await this.#clock.advance(1_000);
    await this.polls(form, []);
    const said = say(this.#id, this.#createdAt, 'poll', this.#truth, form);
    const order = this.#order as MirroredOrder;
    for (const field of FIELD_NAMES)
      if (form.fields[field] === 'named') expect(order[field]).toBe(this.#truth.values[field]);
    if (said.status != null) {
      expect(order.status).toBe(this.#truth.status);
      expect(this.#held).toEqual([]);
    }
    const { outcome } = this.#mirror.read((db) => replayOrder(db, this.#id, { spellings, dryRun: true }));
    expect(outcome).toBe('unchanged');
  }
}

/** Returns whether lines are known by names of the document once a callback was believed. */
function isDocumentedAfter({ lines: how }: Said, before: boolean): boolean {
  return how === 'named' || how === 'brief' || (before && how !== 'empty');
}

function partsOf({ productBasePrice, comment, modifiers }: MirroredOrder['items'][number]) {
  return [productBasePrice as number | null, comment, modifiers[0]?.name ?? null];
}

it('at rest the mirror has what the platform said, whatever came in whatever order, and no guess in its place', async () => {
  const { mirror, clock } = openTestMirror(CONFIGURED);
  let orders = 0;
  const ageMs = fc.constantFrom(MINUTE_MS, 2 * DAY_MS);
  const last = fc.oneof(record, fc.constant(WELL));
  await fc.assert(
    fc.asyncProperty(ageMs, arrivals, last, async (age, all, form) => {
      mirror.health.ok('orders.poll');
      await mirror.health.flush();
      orders += 1;
      const world = new World(mirror, clock, `65b1${String(orders).padStart(20, '0')}`, age);
      for (const arrival of all) await world.happens(arrival);
      await world.rests(form);
      // Nothing that waits is left to the next order.
      await world.rests(WELL);
    }),
    { numRuns: runsOf(400) },
  );
});
