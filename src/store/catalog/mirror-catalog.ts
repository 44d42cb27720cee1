import type Database from 'better-sqlite3';
import {
  type Branch,
  type CatalogLookup,
  type CatalogMapping,
  MAPPING_FIELDS,
  type MappingField,
} from '../../domain/catalog-lookup.ts';
import { branchKey } from './catalog-store.ts';

type Row = { sku: string; productId: string; subsidiaryId: string } & Record<MappingField, string | null>;

/** The mirror's answers to the resolution of changes. A vanished product is one the mirror does not know. */
export class MirrorCatalog implements CatalogLookup {
  readonly #branches: readonly string[];
  readonly #sweeps: Database.Statement<[], string>;
  readonly #product: Database.Statement<[string], string>;
  readonly #ofSku: Database.Statement<[string], Row>;
  readonly #ofExternalId: Database.Statement<[string, string, string], Row>;
  #isComplete = false;

  constructor({ db, branches }: { db: Database.Database; branches: readonly Branch[] }) {
    this.#branches = branches.map(branchKey);
    const select = `
      SELECT i.sku, s.product_id AS productId, i.subsidiary_id AS subsidiaryId, i.ext_id AS extId,
        i.product_id_pos_a AS productIdPosA, i.product_code_pos_b AS productCodePosB
      FROM integrations i CROSS JOIN skus s USING (sku)
        CROSS JOIN products p ON p.product_id = s.product_id AND p.vanished_at IS NULL`;
    this.#sweeps = db.prepare<[], string>('SELECT branch FROM sweeps').pluck();
    this.#product = db
      .prepare<[string], string>(
        `SELECT s.product_id FROM skus s JOIN products p USING (product_id)
         WHERE s.sku = ? AND p.vanished_at IS NULL`,
      )
      .pluck();
    this.#ofSku = db.prepare(`${select} WHERE i.sku = ? ORDER BY i.subsidiary_id, i.rowid`);
    this.#ofExternalId = db.prepare(`
      ${select} WHERE i.ext_id = ? OR i.product_id_pos_a = ? OR i.product_code_pos_b = ?
      ORDER BY i.subsidiary_id, i.sku, i.rowid`);
  }

  get isComplete(): boolean {
    if (this.#isComplete) return true;
    const swept = new Set(this.#sweeps.all());
    this.#isComplete = this.#branches.length > 0 && this.#branches.every((branch) => swept.has(branch));
    return this.#isComplete;
  }

  productOf(sku: string): string | undefined {
    return this.#product.get(sku);
  }

  mappingsOf(sku: string): CatalogMapping[] {
    return this.#ofSku.all(sku).flatMap((row) => mappings(row));
  }

  byExternalId(externalId: string): CatalogMapping[] {
    return this.#ofExternalId
      .all(externalId, externalId, externalId)
      .flatMap((row) => mappings(row, externalId));
  }
}

function mappings(row: Row, wanted?: string): CatalogMapping[] {
  const { sku, productId, subsidiaryId } = row;
  const list: CatalogMapping[] = [];
  for (const field of MAPPING_FIELDS) {
    const externalId = row[field];
    if (externalId === null || externalId === '' || (wanted !== undefined && externalId !== wanted)) continue;
    list.push({ sku, productId, subsidiaryId, field, externalId });
  }
  return list;
}
