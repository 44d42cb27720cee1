import type { Config } from '../../config/config-type.ts';
import type { Branch } from '../../domain/product/catalog-lookup.ts';
import type { MirroredProduct } from '../../domain/product/mirrored-product.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';
import type { OutboxFilter } from '../../store/outbox/outbox-queries.ts';
import type { OutboxEntry } from '../../store/outbox/outbox-row.ts';
import { MirrorStores } from '../storage/mirror-stores.ts';

export type { OutboxEntry, OutboxFilter };

/** How a person names a product. */
export type ProductName = { productId: string } | { sku: string } | { externalId: string };

/** Catalogue and outbox of a mirror that was opened for looking only. */
export function readStores(mirror: Mirror, config: Pick<Config, 'branches'>, clock: Clock): MirrorStores {
  return new MirrorStores({ mirror, branches: configuredBranches(config), clock });
}

export function configuredBranches({ branches }: Pick<Config, 'branches'>): Branch[] {
  return branches.map(({ subsidiaryId = null, externalId = null }) => ({ subsidiaryId, externalId }));
}

/** Products of the mirror by a name; several only where an externalId stands for several. */
export function findProducts(stores: Pick<MirrorStores, 'read'>, name: ProductName): MirroredProduct[] {
  return stores.read(({ catalogQueries }) => catalogQueries.products({ ...name, limit: 100 }));
}
