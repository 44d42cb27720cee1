import type Database from 'better-sqlite3';
import { isoUtc } from '../../../src/core/time.ts';
import { GUARDS_OFF } from '../../../src/outbox/intake/guards.ts';
import type { InboxBatch } from '../../../src/outbox/intake/inbox.ts';
import { BRANCHES, order, outgoing, product } from '../../outbox/outbox-fixture.ts';
import { inMemory } from './in-memory.ts';
import type { Budget, Change, SmallWorld, Stock } from './small-worlds.ts';
import { stateKey } from './state-key.ts';
import { branchOf, type Count, type Order, type Pos, skuOf, takesOf, type World } from './world.ts';

const RULES = { holdBack: true, sendAsIs: false, skipUnchanged: true, trustMs: Number.MAX_SAFE_INTEGER };
const SHELF = 20;
const LONG_MS = 91 * 24 * 3_600_000;
/** Safety stock at the start, and those that a person configures later, one after the other. */
const SAFETY = [0, 3, 1];

export interface Explored {
  states: number;
  /** The first sequence of steps that leads to a fault, and the fault; null if none does. */
  fault: string | null;
}

/** Whether the platform gives back the stock of an ended order (`gives`), and follows edits of an order (`follows`). */
export interface Habits {
  gives: boolean;
  follows: boolean;
}

type Step = [name: string, act: () => void];
/** Returns what is wrong in a state of the mirror; null if nothing is. */
export type Look = (db: Database.Database) => string | null;

/**
 * Tries every sequence of events in a small world, on the mirror's real SQL, with a shop that reads the feed, books,
 * counts and acknowledges. Checks in each state that no more than the shop's free stock is wanted, and that the
 * platform has the expected quantity. At rest, it must have the wanted quantity after at most one more call.
 */
export class Exploration {
  readonly #of: SmallWorld;
  readonly #habits: Habits;
  readonly #branches = BRANCHES.map((branch) => ({ ...branch }));
  readonly #out = outgoing(inMemory(), this.#branches);
  readonly #seen = new Set<string>();
  readonly #rested = new Set<string>();
  readonly #looks = new Map<string, Database.Statement<[], unknown[]>>();
  readonly #savepoint = this.#out.db.prepare('SAVEPOINT step');
  readonly #rollback = this.#out.db.prepare('ROLLBACK TO step');
  readonly #release = this.#out.db.prepare('RELEASE step');
  #world: World;
  #fault: string | null = null;

  readonly #look: Look;

  constructor(of: SmallWorld, habits: Habits, look: Look = () => null) {
    this.#look = look;
    this.#of = of;
    this.#habits = habits;
    const branches = [...new Set(of.stocks.map(branchOf))];
    const shelf = (branch: string) =>
      Object.fromEntries(
        of.stocks.filter((stock) => branchOf(stock) === branch).map((stock) => [stock, of.shelf ?? SHELF]),
      );
    const unknownIn = (branch: string) => (of.unknown ?? []).filter((stock) => branchOf(stock) === branch);
    const pos = (branch: string): Pos => ({
      ...{ read: 0, booked: {}, owed: {} },
      shelf: shelf(branch),
      unknown: unknownIn(branch),
    });
    const known = of.budget.appear ? [] : [...new Set(of.stocks.map(skuOf))];
    this.#world = {
      platform: Object.fromEntries(of.stocks.map((stock) => [stock, of.shelf ?? SHELF])),
      orders: {},
      events: [],
      pos: Object.fromEntries(branches.map((branch) => [branch, pos(branch)])),
      counts: {},
      inbox: [],
      noted: null,
      last: {},
      call: null,
      names: { word: 'Name', id: 'X', known },
      safety: 0,
      store: 'B1' as const,
      done: [],
      nowMs: this.#out.clock.nowMs() + 3_600_000,
    };
    this.#sweep();
    this.#out.reservations.begin(true);
  }

  explore(): Explored {
    this.#out.db.exec('BEGIN IMMEDIATE');
    this.#at(this.#world.nowMs);
    if (this.#world.names.known.length > 0) {
      for (const stock of this.#of.stocks) this.#count(stock);
      while (this.#claim()) this.#answer('done');
    }
    this.#world.done = [];
    this.#visit();
    this.#out.db.exec('ROLLBACK');
    return { states: this.#seen.size, fault: this.#fault };
  }

  #visit(): void {
    const key = this.#key(true);
    if (this.#fault !== null || this.#seen.has(key)) return;
    this.#seen.add(key);
    this.#check();
    this.#try(this.#rest);
    for (const [name, act] of this.#steps()) {
      if (this.#fault !== null) return;
      this.#try(() => {
        this.#world.done.push(name);
        this.#at(this.#world.nowMs + 61_000);
        act();
        this.#visit();
      });
    }
  }

  /** Runs the action and undoes it, in the mirror and in the model. */
  #try(action: () => void): void {
    const before = structuredClone(this.#world);
    this.#savepoint.run();
    try {
      action();
    } catch (error) {
      this.#fault ??= `${this.#world.done.join(', ')}: ${error instanceof Error ? error.stack : error}`;
    } finally {
      this.#rollback.run();
      this.#release.run();
      this.#world = before;
      this.#configure(before.store);
      this.#at(before.nowMs);
    }
  }

  #at(nowMs: number): void {
    this.#world.nowMs = nowMs;
    this.#out.clock.jumpWall(nowMs - this.#out.clock.nowMs());
  }

  #wrong(what: string): void {
    this.#fault ??= `${this.#world.done.join(', ')}: ${what}`;
  }

  #steps(): Step[] {
    const { orders, pos, call, done, inbox, names } = this.#world;
    const { stocks, changes, budget } = this.#of;
    const left = (name: string, most: number | undefined) =>
      done.filter((each) => each === name).length < (most ?? 0);
    const some = (name: keyof Budget, isOpen: boolean, act: () => void): Step[] =>
      isOpen && left(name, budget[name]) ? [[name, act]] : [];
    const steps: Step[] = [];
    for (const change of changes) {
      const known = orders[change.id];
      // An order changes again only once tillsync knows its last change. Only a sweep would show two changes at once.
      const isOpen = change.branch && change.lines ? !known : known && !known.isNews && known.isLive;
      if (isOpen && left(change.name, 1)) steps.push([change.name, () => this.#change(change)]);
    }
    for (const id of ['A', 'B'] as const) {
      if (orders[id]?.isNews) steps.push([`hear ${id}`, () => this.#hear(id)]);
    }
    for (const [branch, each] of Object.entries(pos)) {
      if (this.#unread(each)) steps.push([`read ${branch}`, () => this.#read(branch)]);
      for (const [id, { uncounted }] of Object.entries(each.owed)) {
        // The numbers of lines that it would leave out are those of the newest event.
        const isOld = this.#leftOut(each, id).length > 0 && this.#unread(each)?.id === id;
        if (uncounted.length === 0 && !isOld)
          steps.push([`ack ${id} ${branch}`, () => this.#ack(branch, id)]);
      }
    }
    for (const stock of this.#of.counted ?? stocks) {
      const isKnown = names.known.includes(skuOf(stock));
      if (isKnown && left(`count ${stock}`, budget.count)) {
        steps.push([`count ${stock}`, () => this.#count(stock)]);
      }
    }
    const [first] = stocks as [Stock];
    const held = this.#rows(
      `SELECT change_id FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL`,
    );
    const heldId = Number(held[0]?.[0]);
    const isSplit = budget.lose !== undefined;
    return [
      ...steps,
      ...some('hold', true, () => this.#count(first, { isHeld: true })),
      ...(held.length > 0
        ? ([
            ['release', () => void this.#out.admin.release({ changeId: heldId })],
            ['drop', () => this.#out.admin.discard(heldId)],
          ] as Step[])
        : []),
      ...some('misname', true, () => this.#misname(first)),
      ...some('insert', true, () => this.#insert(first)),
      ...(inbox.length > 0 || this.#isLate() ? [['look', () => this.#lookIn()] as Step] : []),
      ...some('note', true, () => this.#note(first)),
      ...(this.#world.noted ? [['hand in', () => this.#handIn()] as Step] : []),
      ...some('sell', true, () => this.#sell(first)),
      ...some('learn', true, () => this.#learn()),
      ...some('rename', names.known.length > 0, () => this.#catalogue({ word: 'New name' })),
      ...some('map', names.known.length > 0, () => this.#catalogue({ id: 'Z', word: 'Other name' })),
      ...some('appear', true, () => this.#catalogue({ known: stocks.map(skuOf) })),
      ...some('collect', true, () => this.#collect()),
      ...some('wait', true, () => {
        this.#at(this.#world.nowMs + LONG_MS);
        this.#collect();
      }),
      ...some('safety', true, () => this.#keepBack()),
      ...some('correct', true, () => this.#correct()),
      ...some('refuse', true, () => void (this.#claim() && this.#answer('rejected'))),
      ...(isSplit
        ? [
            ['claim', () => void this.#claim()] as Step,
            ...(call && !call.isApplied ? [['apply', () => this.#apply()] as Step] : []),
            ...(call?.isApplied ? [['settle', () => this.#settle('done')] as Step] : []),
            ...some('lose', call !== null, () => this.#settle('retry')),
          ]
        : [['send', () => void (this.#claim() && this.#answer('done'))] as Step]),
    ];
  }

  #change({ id, branch, lines, isLive }: Change): void {
    const { orders, platform, nowMs } = this.#world;
    const known = orders[id];
    const base: Order = known ?? {
      branch: 's1',
      lines: {},
      isLive: true,
      createdAt: isoUtc(nowMs),
      isNews: true,
      named: null,
      took: {},
      heard: {},
    };
    const changed = {
      ...base,
      branch: branch ?? base.branch,
      lines: lines ?? base.lines,
      isLive: isLive ?? base.isLive,
      isNews: true,
    };
    orders[id] = changed;
    const takes = takesOf(changed);
    const { gives, follows } = this.#habits;
    for (const stock of this.#of.stocks) {
      const more = (takes[stock] ?? 0) - (changed.took[stock] ?? 0);
      const isFollowed = !known || (more < 0 && !changed.isLive ? gives : follows);
      if (!isFollowed) continue;
      changed.took[stock] = (changed.took[stock] ?? 0) + more;
      platform[stock] = Math.max(0, (platform[stock] ?? 0) - more);
    }
  }

  #hear(id: 'A' | 'B'): void {
    const heard = this.#world.orders[id];
    if (!heard) return;
    heard.named ??= { word: this.#world.names.word, id: this.#world.names.id };
    const { word, id: mapped } = heard.named;
    const isByName = this.#of.byName?.includes(id) ?? false;
    const lines = Object.entries(heard.lines).flatMap(([sku, qty]) =>
      (this.#of.areLinesSplit ? [Math.min(1, qty), Math.max(0, qty - 1)] : [qty]).map(
        (each): [string | null, number, string] => [
          isByName ? null : `${mapped}${sku}`,
          each,
          `${word} ${sku}`,
        ],
      ),
    );
    const store = heard.branch === 's1' ? this.#world.store : 'B2';
    order(this.#out, id, store, lines, heard.isLive ? 'pending' : 'cancel', { createdAt: heard.createdAt });
    this.#catchUp();
    heard.heard = takesOf(heard);
    heard.isNews = false;
    this.#world.events.push({ seq: this.#seq(), id, takes: heard.heard });
  }

  #unread({ read }: Pos): World['events'][number] | undefined {
    return this.#world.events.find(({ seq }) => seq > read);
  }

  /** Lets the branch's POS read the next event, and book it if it concerns the branch. */
  #read(branch: string): void {
    // Finds the POS only now, because `#try` may have replaced the world since the step was listed.
    const pos = this.#world.pos[branch];
    const event = pos && this.#unread(pos);
    if (!event) return;
    pos.read = event.seq;
    const had = pos.booked[event.id] ?? {};
    const mine = Object.keys(pos.shelf).map((stock) => {
      const qty = this.#bookable(pos, stock, event.takes[stock] ?? 0);
      return { stock, qty, takes: event.takes[stock] ?? 0, more: qty - (had[stock] ?? 0) };
    });
    const moved = mine.filter(({ more }) => more !== 0);
    for (const { stock, more } of moved) pos.shelf[stock] = (pos.shelf[stock] ?? 0) - more;
    if (moved.length === 0 && !mine.some(({ takes }) => takes > 0)) return;
    pos.booked[event.id] = Object.fromEntries(mine.map(({ stock, qty }) => [stock, qty]));
    const before = pos.owed[event.id]?.uncounted ?? [];
    const uncounted = [...new Set([...before, ...moved.map(({ stock }) => stock)])].sort();
    pos.owed[event.id] = { seq: event.seq, uncounted };
  }

  /** Lets each POS learn the articles that it did not know, and book what it had left out. */
  #learn(): void {
    for (const pos of Object.values(this.#world.pos)) {
      const learnt = pos.unknown;
      pos.unknown = [];
      for (const [id, booked] of Object.entries(pos.booked)) {
        const newest = this.#world.events.findLast((event) => event.id === id && event.seq <= pos.read);
        const more = learnt.filter((stock) => (newest?.takes[stock] ?? 0) > (booked[stock] ?? 0));
        if (!newest || more.length === 0) continue;
        for (const stock of more) {
          const qty = newest.takes[stock] ?? 0;
          pos.shelf[stock] = (pos.shelf[stock] ?? 0) - (qty - (booked[stock] ?? 0));
          booked[stock] = qty;
        }
        const before = pos.owed[id]?.uncounted ?? [];
        pos.owed[id] = { seq: newest.seq, uncounted: [...new Set([...before, ...more])].sort() };
      }
    }
  }

  /** Returns the numbers of an order's lines whose article the POS does not know. */
  #leftOut({ unknown }: Pos, id: string): number[] {
    const order = this.#world.orders[id as 'A' | 'B'];
    if (!order || unknown.length === 0) return [];
    return Object.entries(order.lines).flatMap(([sku, qty], i) => {
      if (!unknown.includes(`${order.branch}/${sku}`)) return [];
      if (!this.#of.areLinesSplit) return [i + 1];
      return qty > 1 ? [2 * i + 2] : [];
    });
  }

  /** Returns how many pieces of an order the POS can book: of an unknown line none. */
  #bookable({ unknown }: Pos, stock: string, qty: number): number {
    if (!unknown.includes(stock)) return qty;
    return this.#of.areLinesSplit ? Math.min(1, qty) : 0;
  }

  #ack(branch: string, id: string): void {
    const { pos, nowMs } = this.#world;
    const own = pos[branch];
    if (!own) return;
    const { owed } = own;
    const seq = owed[id]?.seq;
    const without = this.#leftOut(own, id);
    delete owed[id];
    const name = branch === 's1' ? this.#world.store : 'B2';
    const [answer] = this.#out.reservations.acknowledge([{ orderId: id, seq, without }], 'http', {
      ...(this.#of.areApart && { branch: { name, subsidiaryId: branch } }),
      beforeInbox: this.#of.budget.insert ? isoUtc(nowMs) : undefined,
    });
    if (answer?.state === 'rejected') this.#wrong(`the acknowledgement of ${id} as of ${seq} is refused`);
  }

  /** Returns a count of the shelf, which lacks the pieces of booked orders; removes the stock from `uncounted`. */
  #counted(stock: Stock): Count {
    const pos = this.#world.pos[branchOf(stock)];
    for (const each of Object.values(pos?.owed ?? {})) {
      each.uncounted = each.uncounted.filter((uncounted) => uncounted !== stock);
    }
    const booked = Object.entries(pos?.booked ?? {});
    const qty = pos?.shelf[stock] ?? 0;
    this.#world.last[stock] = qty;
    return { stock, qty, contains: Object.fromEntries(booked.map(([id, lines]) => [id, lines[stock] ?? 0])) };
  }

  #count(stock: Stock, { isHeld = false } = {}): void {
    const count = this.#counted(stock);
    const change = { sku: skuOf(stock), subsidiaryId: branchOf(stock), qty: count.qty };
    this.#out.intake.accept([{ kind: 'stock', change }], {
      source: 'http',
      guards: GUARDS_OFF,
      hold: isHeld ? { guard: 'zero-items', message: 'Held.' } : undefined,
      beforeInbox: this.#of.budget.insert ? isoUtc(this.#world.nowMs) : undefined,
    });
    this.#world.counts[this.#version()] = count;
  }

  /** Submits a count with an id that no product has, and lets it be refused as unknown to the platform too. */
  #misname(stock: Stock): void {
    const { qty } = this.#counted(stock);
    this.#out.accept('stock', [{ externalId: 'nobody', subsidiaryId: branchOf(stock), qty }]);
    for (const change of this.#out.admin.unresolved('needs-read', { limit: 9 })) {
      this.#out.admin.retarget(change, this.#out.resolve(change, true));
    }
  }

  /** Writes down a count of the shelf, which the POS hands over later. */
  #note(stock: Stock): void {
    const pos = this.#world.pos[branchOf(stock)];
    const booked = Object.entries(pos?.booked ?? {});
    const contains = Object.fromEntries(booked.map(([id, lines]) => [id, lines[stock] ?? 0]));
    this.#world.noted = { stock, qty: pos?.shelf[stock] ?? 0, contains, atMs: this.#world.nowMs };
  }

  #handIn(): void {
    const { noted, pos } = this.#world;
    if (!noted) return;
    this.#world.noted = null;
    const { atMs, ...count } = noted;
    const { stock, qty, contains } = count;
    const change = { sku: skuOf(stock), subsidiaryId: branchOf(stock), qty };
    const [taken] = this.#out.intake.accept([{ kind: 'stock', change, countedAt: isoUtc(atMs) }], {
      source: 'http',
      guards: GUARDS_OFF,
    });
    if (taken?.state === 'superseded') return;
    this.#world.counts[this.#version()] = count;
    // It stands for what the POS owes only as far as it contains what was booked since.
    const own = pos[branchOf(stock)];
    for (const [id, each] of Object.entries(own?.owed ?? {})) {
      if ((own?.booked[id]?.[stock] ?? 0) !== (contains[id] ?? 0)) continue;
      each.uncounted = each.uncounted.filter((uncounted) => uncounted !== stock);
    }
  }

  #insert(stock: Stock): void {
    this.#world.inbox.push({ ...this.#counted(stock), handedAt: isoUtc(this.#world.nowMs) });
  }

  /** Reads the inbox: copies its rows, if any, and then records that it is empty. */
  #lookIn(): void {
    const { inbox, nowMs } = this.#world;
    if (inbox.length > 0) {
      const changes = inbox.map(({ stock, qty, handedAt }, n) => {
        const key = { table: 'stock_changes', id: `${n}`, key: `${handedAt}${n}`, keyHex: `${n}` } as const;
        const value = { sku: Number(skuOf(stock)), qty, subsidiaryId: branchOf(stock) };
        return { ...key, tooLong: null, kind: 'stock' as const, reference: null, handedAt, value };
      });
      const batch: InboxBatch = { changes, acks: [], alive: [], more: false };
      const before = this.#version();
      this.#out.inbox.ingest(batch, GUARDS_OFF);
      this.#out.inbox.forget(batch);
      for (const [n, { handedAt: _handedAt, ...count }] of inbox.entries()) {
        this.#world.counts[before + 1 + n] = count;
      }
      this.#world.inbox = [];
    }
    this.#out.intake.inboxWasEmpty(isoUtc(nowMs));
  }

  #isLate(): boolean {
    return this.#out.intake.mayComeLate(isoUtc(this.#world.nowMs));
  }

  #sell(stock: Stock): void {
    const shelf = this.#world.pos[branchOf(stock)]?.shelf;
    if (shelf) shelf[stock] = (shelf[stock] ?? 0) - 1;
  }

  #catalogue(names: Partial<World['names']>): void {
    this.#raisesNothing('the catalogue', () => {
      Object.assign(this.#world.names, names);
      this.#sweep();
      this.#catchUp();
    });
  }

  /** Runs `act`, which changes the catalogue or the configuration, and checks that it raises no wanted quantity. */
  #raisesNothing(what: string, act: () => void): void {
    const before = new Map(this.#ledger().map(({ stock, wanted }) => [stock, wanted]));
    act();
    for (const { stock, wanted } of this.#ledger()) {
      if (wanted > (before.get(stock) ?? wanted)) {
        this.#wrong(`${what} raises what is wanted of ${stock} from ${before.get(stock)} to ${wanted}`);
      }
    }
  }

  /** Deletes rows that nothing needs, and checks that the wanted and expected quantities stay the same. */
  #collect(): void {
    this.#sweep();
    this.#catchUp();
    const numbers = () =>
      JSON.stringify(this.#ledger().map(({ stock, wanted, expected }) => [stock, wanted, expected]));
    const before = numbers();
    while (this.#out.reservations.collect() > 0);
    if (numbers() !== before) this.#wrong(`what is forgotten makes ${numbers()} of ${before}`);
  }

  /** Configures another safety stock, as a person does; only a smaller one may raise the wanted quantity. */
  #keepBack(): void {
    const qty = SAFETY[this.#world.done.filter((name) => name === 'safety').length] ?? 0;
    const change = () => {
      this.#out.safety.configure([{ sku: null, subsidiaryId: 's1', qty }]);
      this.#catchUp();
    };
    if (qty > this.#world.safety) this.#raisesNothing('a safety stock', change);
    else change();
    this.#world.safety = qty;
  }

  #correct(): void {
    this.#raisesNothing('the configuration', () => {
      this.#world.store = 'C1';
      this.#configure('C1');
      this.#catchUp();
    });
  }

  /** Restarts the process with another configuration. */
  #configure(store: World['store']): void {
    const [first] = this.#branches;
    if (!first || first.externalId === store) return;
    first.externalId = store;
    this.#out.restart();
  }

  #catchUp(): void {
    while (this.#out.dispatcher.catchUp({ holdBack: true }));
  }

  /** Claims a call; returns false if none is to be made. Checks that no stock is sent needlessly, or twice at once. */
  #claim(): boolean {
    const before = new Map(this.#ledger().map((each) => [each.stock, each]));
    const counted = this.#rows(`SELECT target FROM outbox WHERE state = 'pending' AND held_guard IS NULL`);
    const { callId, items } = this.#out.dispatcher.claim('stock', 100, { ...RULES, platformDeducts: true });
    if (callId === null) return false;
    const sent = items.map(({ changeId, target, body }) => {
      const [, sku, branch] = /^sku:(.+)@(.+)$/.exec(target) ?? [];
      const qty = 'qty' in body ? body.qty : Number.NaN;
      return { changeId, stock: `${branch}/${sku}` as Stock, qty, target };
    });
    for (const { stock, qty, target } of sent) {
      if (this.#world.call?.items.some((other) => other.stock === stock)) {
        this.#wrong(`${stock} leaves while a call with it is under way`);
      }
      const known = before.get(stock);
      // A count is sent nevertheless if orders arrived since the quantity of the platform was confirmed.
      const isCount = counted.some(([each]) => each === target) && known?.ordered !== 0;
      if (known?.expected === qty && !isCount)
        this.#wrong(`${stock} is sent as ${qty}, which the platform has`);
    }
    if (this.#world.call) return false;
    this.#world.call = { id: callId, items: sent, isApplied: false };
    return true;
  }

  #apply(): void {
    const { call, platform } = this.#world;
    if (!call) return;
    for (const { stock, qty } of call.items) platform[stock] = qty;
    call.isApplied = true;
  }

  #settle(state: 'done' | 'retry' | 'rejected'): void {
    const { call } = this.#world;
    if (!call) return;
    this.#world.call = null;
    this.#out.dispatcher.settle(
      call.id,
      call.items.map(({ changeId }) => ({ changeId, state, message: 'No.' })),
    );
  }

  #answer(state: 'done' | 'rejected'): void {
    if (state === 'done' && !this.#world.call?.isApplied) this.#apply();
    this.#settle(state);
  }

  /** Returns the shop's free stock by the count of this version; undefined if there is no such count. */
  #free(stock: Stock, version: number): number | undefined {
    const count = this.#world.counts[version];
    if (!count) return undefined;
    const reserved = Object.entries(this.#world.orders).map(([id, each]) =>
      Math.max(0, (each?.heard[stock] ?? 0) - (count.contains[id] ?? 0)),
    );
    return Math.max(0, count.qty - reserved.reduce((sum, qty) => sum + qty, 0) - this.#safetyOf(stock));
  }

  #safetyOf(stock: Stock): number {
    return branchOf(stock) === 's1' ? this.#world.safety : 0;
  }

  #check(): void {
    const seen = this.#look(this.#out.db);
    if (seen !== null) this.#wrong(seen);
    const { orders, platform } = this.#world;
    const isAllHeard = Object.values(orders).every((each) => !each?.isNews);
    for (const { stock, wanted, expected, version, counted } of this.#ledger()) {
      const free = this.#free(stock, version);
      if (free === undefined) this.#wrong(`nobody counted ${stock} with ${version}`);
      else if (wanted > free) this.#wrong(`${wanted} of ${stock} are wanted, ${free} are free`);
      // The held back pieces never exceed the pieces that orders take now.
      const taken = Object.values(orders).reduce((sum, each) => sum + (each?.heard[stock] ?? 0), 0);
      if (wanted < counted - taken - this.#safetyOf(stock))
        this.#wrong(`${wanted} of ${counted} ${stock} are wanted, ${taken} are sold`);
      if (isAllHeard && expected !== null && expected !== platform[stock]) {
        this.#wrong(`${expected} of ${stock} are expected, the platform has ${platform[stock]}`);
      }
    }
  }

  /** Delivers all news and answers; then the shop reads, counts and acknowledges. Checks each resulting state once. */
  readonly #rest = (): void => {
    for (const id of ['A', 'B'] as const) if (this.#world.orders[id]?.isNews) this.#hear(id);
    if (this.#world.call) this.#answer('done');
    if (this.#world.inbox.length > 0 || this.#isLate()) this.#lookIn();
    const key = this.#key(false);
    if (this.#rested.has(key)) return;
    this.#rested.add(key);
    this.#quiet('all is heard');
    this.#at(this.#world.nowMs + 61_000);
    for (const [branch, each] of Object.entries(this.#world.pos))
      while (this.#unread(each)) this.#read(branch);
    this.#learn();
    const known = this.#of.stocks.filter((stock) => this.#world.names.known.includes(skuOf(stock)));
    for (const stock of known) this.#count(stock);
    for (const [branch, { owed }] of Object.entries(this.#world.pos)) {
      for (const id of Object.keys(owed)) this.#ack(branch, id);
    }
    this.#at(this.#world.nowMs + 61_000);
    if (this.#isLate()) this.#lookIn();
    this.#quiet('all is booked');
    for (const { stock, wanted } of this.#ledger()) {
      const has = this.#world.pos[branchOf(stock)]?.shelf[stock] ?? 0;
      const shelf = Math.max(0, has - this.#safetyOf(stock));
      if (wanted !== shelf)
        this.#wrong(`all is booked: ${wanted} of ${stock} are wanted, the shop has ${shelf}`);
    }
  };

  /** Sends all due changes. After at most one call per stock the platform must have the wanted quantity. */
  #quiet(when: string): void {
    const sent: Stock[] = [];
    while (this.#claim() && sent.length <= 2 * this.#of.stocks.length) {
      sent.push(...(this.#world.call?.items.map(({ stock }) => stock) ?? []));
      this.#answer('done');
    }
    if (new Set(sent).size < sent.length) this.#wrong(`${when}: ${sent.join(', ')} are sent`);
    this.#check();
    for (const { stock, wanted, counted, isRefused } of this.#ledger()) {
      const { platform, last } = this.#world;
      if (!isRefused && platform[stock] !== wanted) {
        this.#wrong(`${when}: the platform has ${platform[stock]} of ${stock}, wanted is ${wanted}`);
      }
      if (this.#of.budget.insert && last[stock] !== counted) {
        this.#wrong(`${when}: ${counted} of ${stock} stands, ${last[stock]} was counted last`);
      }
    }
  }

  #ledger() {
    const columns = `SELECT sku, subsidiary_id, wanted_qty, expected_qty, counted_version, counted_qty,
      given_up, ordered_qty FROM _stock_ledger`;
    return this.#rows(columns).map(
      ([sku, branch, wanted, expected, version, counted, isRefused, ordered]) => ({
        stock: `${branch}/${sku}` as Stock,
        wanted: Number(wanted),
        expected: expected === null ? null : Number(expected),
        version: Number(version),
        counted: Number(counted),
        isRefused: isRefused === 1,
        ordered: Number(ordered),
      }),
    );
  }

  #sweep(): void {
    const { word, id, known } = this.#world.names;
    const { platform } = this.#world;
    const records = known.map((sku) => {
      const own = this.#of.stocks.filter((stock) => skuOf(stock) === sku);
      const stocks = own.map((stock): [string, [string, number]] => [
        branchOf(stock),
        [`${id}${sku}`, platform[stock] ?? 0],
      ]);
      return product(`p${sku}`, `${word} ${sku}`, [{ sku, stocks: Object.fromEntries(stocks) }]);
    });
    const { store } = this.#out;
    const seen = new Set(records.map((record) => record.id));
    for (const branch of this.#branches) {
      const mark = store.readMark();
      store.applyPage(branch, records, mark);
      store.completeSweep({ branch, mark, startedAtMs: this.#world.nowMs, pages: 1, seen });
    }
  }

  #seq(): number {
    return this.#out.store.readMark().orderSeq;
  }

  #version(): number {
    return Number(this.#rows("SELECT value FROM marks WHERE name = 'outbox.version'")[0]?.[0]);
  }

  #rows(sql: string): unknown[][] {
    const known = this.#looks.get(sql) ?? this.#out.db.prepare<[], unknown[]>(sql).raw();
    this.#looks.set(sql, known);
    return known.all();
  }

  #key(isOpen: boolean): string {
    return stateKey(this.#world, this.#of, (sql) => this.#rows(sql), isOpen);
  }
}
