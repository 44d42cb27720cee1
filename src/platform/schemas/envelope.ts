import { z } from 'zod';
import { nullableFlag, nullableText } from './tolerant.ts';

/** Response envelope (document, "Response envelope"); fields beside these are left alone. */
export const envelopeAnswer = z.looseObject({
  success: nullableFlag,
  message: nullableText,
  data: z.unknown().optional(),
});
