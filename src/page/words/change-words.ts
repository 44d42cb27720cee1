import type { Change } from '../answers.ts';
import type { Speech } from './language.ts';

type Value = string | number;

/** Which product, and of a stock in which branch. */
export function changeSubject({ body, target }: Change, { say }: Speech): string {
  const name =
    textOf(body.externalId) ?? (body.sku === undefined ? undefined : `SKU ${textOf(body.sku)}`) ?? target;
  const branch = textOf(body.subsidiaryExternalId) ?? textOf(body.subsidiaryId);
  return branch === undefined ? name : `${name} · ${say('outbox.branch', { branch })}`;
}

/** The new values, one after the other. */
export function changeValues({ body }: Change, { say, format }: Speech): string {
  const amount = (value: unknown): Value => format.amount(textOf(value) ?? null);
  const words = [
    body.qty === undefined ? '' : say('value.qty', { value: amount(body.qty) }),
    body.price === undefined ? '' : say('value.price', { value: amount(body.price) }),
    body.name === undefined ? '' : say('value.name', { value: textOf(body.name) ?? '' }),
    body.description === undefined ? '' : say('value.description'),
    typeof body.show === 'boolean' ? say(`value.show.${body.show}`) : '',
  ];
  return words.filter((word) => word !== '').join(', ');
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}
