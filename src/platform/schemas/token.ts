import { z } from 'zod';
import { nullableText } from './tolerant.ts';

/** Body of POST /token/refresh. */
export const tokenRefreshRequest = z.strictObject({ refreshToken: z.string().min(1) });

/**
 * `data` of its answer: a new pair, and a lifetime text such as `1h`. What cannot be a refresh token is not taken for
 * one, so that the loss is told as what it is.
 */
export const tokenRefreshData = z.looseObject({
  token: z.string().min(1),
  refreshToken: z.string().regex(/^[\x21-\x7e]+$/),
  expiresIn: nullableText,
});
