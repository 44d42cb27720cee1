import { z } from 'zod';

/** A calendar date, YYYY-MM-DD. */
export const dateText = z.iso.date();

/** Query of GET /order/all; further parameters may be configured, since its paging is not shown. */
export const orderAllQuery = z
  .looseObject({ startDate: dateText, endDate: dateText })
  .refine((query) => query.startDate <= query.endDate, { error: 'startDate is after endDate' });
