import { expectTypeOf, it } from 'vitest';
import type { z } from 'zod';
import type { boardAnswer, trendsAnswer } from '../../src/api/board-routes.ts';
import type { feedEvent, orderAnswer } from '../../src/api/order-routes.ts';
import type { change, outboxPage } from '../../src/api/outbox-routes.ts';
import type { productPage } from '../../src/api/product-routes.ts';
import type { statusAnswer } from '../../src/api/status-routes.ts';
import type * as page from '../../src/page/api.ts';

it('reads of the local API what the API documents (held by the type check)', () => {
  expectTypeOf<z.output<typeof statusAnswer>>().toExtend<page.StatusAnswer>();
  expectTypeOf<z.output<typeof boardAnswer>>().toExtend<page.BoardAnswer>();
  expectTypeOf<z.output<typeof trendsAnswer>>().toExtend<page.TrendsAnswer>();
  expectTypeOf<z.output<typeof feedEvent>>().toExtend<page.FeedEvent>();
  expectTypeOf<z.output<typeof orderAnswer>>().toExtend<page.OrderAnswer>();
  expectTypeOf<z.output<typeof change>>().toExtend<page.Change>();
  expectTypeOf<z.output<typeof outboxPage>>().toExtend<page.OutboxAnswer>();
  expectTypeOf<z.output<typeof productPage>>().toExtend<page.ProductsAnswer>();
});
