import type { Endpoint } from '../domain/platform/limits.ts';
import type { CallCounts, CallJournal, CallRecord } from './call-journal.ts';
import type { CatalogProduct, Oversell } from './catalog-model.ts';
import type { Fault, FaultSpec, Faults } from './faults.ts';
import type { LimitKeeper } from './limit-keeper.ts';
import type { NewOrder } from './order-factory.ts';
import type { OrderSnapshot } from './order-model.ts';
import type { SandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import type { DeadRefreshUse, IssuedPair, TokenOffice } from './token-office.ts';
import type { WebhookConfig } from './webhook-config.ts';
import type { Delivery, WebhookBehaviour } from './webhook-sender.ts';

export interface SandboxControlOptions {
  settings: SandboxSettings;
  tokens: TokenOffice;
  limits: LimitKeeper;
  journal: CallJournal;
  faults: Faults;
  shop: Shop;
}

/** What a test, a demo or a person does behind the platform's back. None of it is subject to limits or faults. */
export class SandboxControl {
  readonly #options: SandboxControlOptions;

  constructor(options: SandboxControlOptions) {
    this.#options = options;
  }

  /** Creates an order and announces it, unless hidden from the webhook; what `wish` leaves out is drawn. */
  createOrder(wish: NewOrder = {}, how: { hidden?: boolean } = {}): OrderSnapshot {
    return this.#options.shop.orders.create(wish, how).snapshot;
  }

  /** Next plausible status, or the one named (any text). Undefined: the order is at its end. */
  advanceOrder(orderId: string, status?: string): OrderSnapshot | undefined {
    return this.#options.shop.orders.advance(orderId, status)?.snapshot;
  }

  /** Changes fields without a notification: only a poll can see it. */
  changeOrder(orderId: string, patch: Partial<OrderSnapshot>): OrderSnapshot {
    return this.#options.shop.orders.change(orderId, patch).snapshot;
  }

  /** Sends the notification of an order as it is now once more. */
  announceOrder(orderId: string): void {
    const { orders, sender } = this.#options.shop;
    sender.announce(orders.get(orderId).snapshot);
  }

  /** From now on no notification of this order leaves. */
  hideOrder(orderId: string): void {
    this.#options.shop.sender.hide(orderId);
  }

  /** In order of creation. */
  orders(): OrderSnapshot[] {
    return this.#options.shop.orders.all().map((order) => order.snapshot);
  }

  order(orderId: string): OrderSnapshot | undefined {
    const { orders } = this.#options.shop;
    return orders.has(orderId) ? orders.get(orderId).snapshot : undefined;
  }

  products(): CatalogProduct[] {
    return this.#options.shop.catalog.products();
  }

  putProduct(product: CatalogProduct): void {
    this.#options.shop.catalog.put(product);
  }

  removeProduct(productId: string): void {
    this.#options.shop.catalog.remove(productId);
  }

  /** Quantity of a stock entry; undefined when there is none. */
  stockOf(sku: number, subsidiaryId: string): number | undefined {
    const found = this.#options.shop.catalog.findSku(sku);
    return found?.sku.stocks.find((stock) => stock.subsidiaryId === subsidiaryId)?.qty;
  }

  /** Orders that took more than there was. */
  oversells(): readonly Oversell[] {
    return this.#options.shop.catalog.oversells();
  }

  /** The webhook with its secret, or null. */
  webhook(): WebhookConfig | null {
    return this.#options.shop.desk.config;
  }

  /** Sets it as the company panel does, without the API. */
  setWebhook(config: WebhookConfig | null): void {
    this.#options.shop.desk.set(config);
  }

  /** How unreliable the webhook sender is; what is left out stays. */
  setWebhookBehaviour(change: Partial<WebhookBehaviour>): void {
    const { sender } = this.#options.shop;
    sender.behaviour = { ...sender.behaviour, ...change };
  }

  deliveries(): readonly Delivery[] {
    return this.#options.shop.sender.deliveries();
  }

  /** Resolves when no notification is under way. */
  settled(): Promise<void> {
    return this.#options.shop.sender.settled();
  }

  /** Switches a fault on; the number switches it off again. */
  setFault(spec: FaultSpec): number {
    return this.#options.faults.add(spec);
  }

  clearFaults(id?: number): void {
    this.#options.faults.clear(id);
  }

  faults(): Fault[] {
    return this.#options.faults.list();
  }

  /** Changes what the document leaves open, from the next call on. */
  configure(change: Partial<SandboxSettings>): void {
    Object.assign(this.#options.settings, change);
  }

  settings(): Readonly<SandboxSettings> {
    return this.#options.settings;
  }

  calls(endpoint?: Endpoint): readonly CallRecord[] {
    return this.#options.journal.calls(endpoint);
  }

  counts(): Partial<Record<Endpoint, CallCounts>> {
    return this.#options.journal.counts();
  }

  /** Calls that broke a limit of the document; faults that only play at it are none. */
  violations(): readonly CallRecord[] {
    return this.#options.journal.violations();
  }

  /** Of this company, or of another one on the same platform. */
  issueTokens(company = this.#options.shop.company): IssuedPair {
    return this.#options.tokens.issue(company);
  }

  /** Uses of refresh tokens that were dead already. */
  deadRefreshUses(): readonly DeadRefreshUse[] {
    return this.#options.tokens.deadUses();
  }

  expireAccessTokens(): void {
    this.#options.tokens.expireAccessTokens();
  }

  revokeRefreshTokens(): void {
    this.#options.tokens.revokeRefreshTokens();
  }

  /** Ends every block of a token. */
  unblock(): void {
    this.#options.limits.unblockAll();
  }
}
