import type Database from 'better-sqlite3';
import {
  type Branch,
  type CatalogLookup,
  type CatalogMapping,
  MAPPING_FIELDS,
  type MappingField,
} from '../../domain/product/catalog-lookup.ts';
import { branchKey } from './catalog-store.ts';

type Row = [sku: string, productId: string, subsidiaryId: string, field: number];
type SkuRow = { sku: string; productId: string; subsidiaryId: string } & Record<MappingField, string | null>;

const COLUMNS: Record<MappingField, string> = {
  extId: 'ext_id',
  productIdPosA: 'product_id_pos_a',
  productCodePosB: 'product_code_pos_b',
};

/** The mirror's answers to the resolution of changes. A vanished product is one the mirror does not know. */
export class MirrorCatalog implements CatalogLookup {
  readonly #branches: readonly string[];
  readonly #sweeps: Database.Statement<[], { branch: string; startedAt: string }>;
  readonly #product: Database.Statement<[string], string>;
  readonly #ofSku: Database.Statement<[string], SkuRow>;
  readonly #byExternalId: Database.Statement<string[], Row>;
  #isComplete = false;

  constructor({ db, branches }: { db: Database.Database; branches: readonly Branch[] }) {
    this.#branches = branches.map(branchKey);
    this.#sweeps = db.prepare('SELECT branch, started_at AS startedAt FROM sweeps');
    this.#product = db
      .prepare<[string], string>(
        `SELECT s.product_id FROM skus s JOIN products p USING (product_id)
         WHERE s.sku = ? AND p.vanished_at IS NULL`,
      )
      .pluck();
    this.#ofSku = db.prepare(`
      SELECT sku, product_id AS productId, subsidiary_id AS subsidiaryId, ext_id AS extId,
        product_id_pos_a AS productIdPosA, product_code_pos_b AS productCodePosB
      FROM integrations WHERE sku = ?`);
    const byField = MAPPING_FIELDS.map(
      (field, i) =>
        `SELECT sku, product_id, subsidiary_id, ${i} FROM integrations WHERE ${COLUMNS[field]} = ?`,
    );
    this.#byExternalId = db.prepare<string[], Row>(byField.join(' UNION ALL ')).raw();
  }

  get isComplete(): boolean {
    if (this.#isComplete) return true;
    this.#isComplete = this.sweptMs !== undefined;
    return this.#isComplete;
  }

  /** When the last whole reading began of the branch that was read longest ago; undefined while one never was. */
  get sweptMs(): number | undefined {
    const swept = new Map(this.#sweeps.all().map(({ branch, startedAt }) => [branch, Date.parse(startedAt)]));
    const times = this.#branches.map((branch) => swept.get(branch));
    return times.length > 0 && times.every((each) => each !== undefined) ? Math.min(...times) : undefined;
  }

  productOf(sku: string): string | undefined {
    return this.#product.get(sku);
  }

  mappingsOf(sku: string): CatalogMapping[] {
    const list: CatalogMapping[] = [];
    for (const { productId, subsidiaryId, ...row } of this.#ofSku.all(sku)) {
      for (const field of MAPPING_FIELDS) {
        const externalId = row[field];
        if (externalId) list.push({ sku, productId, subsidiaryId, field, externalId });
      }
    }
    return list.sort(byPlace);
  }

  byExternalId(externalId: string): CatalogMapping[] {
    const list: CatalogMapping[] = [];
    for (const [sku, productId, subsidiaryId, i] of this.#byExternalId.all(
      externalId,
      externalId,
      externalId,
    )) {
      list.push({ sku, productId, subsidiaryId, field: MAPPING_FIELDS[i] ?? 'extId', externalId });
    }
    return list.length > 1 ? list.sort(byPlace) : list;
  }
}

function byPlace(a: CatalogMapping, b: CatalogMapping): number {
  if (a.subsidiaryId !== b.subsidiaryId) return a.subsidiaryId < b.subsidiaryId ? -1 : 1;
  return a.sku < b.sku ? -1 : Number(a.sku > b.sku);
}
