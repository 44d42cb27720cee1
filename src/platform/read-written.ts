import type { BatchAnswer, SingleAnswer } from '../domain/platform/platform.ts';
import { bounded, readAs, readData, readEnvelope } from './answers.ts';
import { batchData } from './schemas/batch-answer.ts';
import type { CallAnswer } from './transport.ts';

/** The answer of PUT /product and PUT /product/stock; throws `platform-refused`, `platform-garbled`. */
export function readSingle(answer: CallAnswer): SingleAnswer {
  return readEnvelope(answer).success === true ? 'applied' : 'unsaid';
}

/** The answer of either batch endpoint; throws `platform-refused`, `platform-garbled`. */
export function readBatchData(answer: CallAnswer): BatchAnswer {
  const { updated, total, errors } = readAs(batchData, readData(answer), answer);
  const told = (text: string) => bounded(text, answer) || 'The platform gives no reason.';
  return { updated, total, errors: errors.map((error) => ({ ...error, message: told(error.message) })) };
}
