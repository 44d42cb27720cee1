/** Letters that Unicode does not decompose, as they are typed on a keyboard without them. */
const PLAIN: Readonly<Record<string, string>> = { ø: 'o', đ: 'd', ł: 'l', æ: 'ae', œ: 'oe', ς: 'σ' };
/** Accents and other marks, and characters that nobody sees, such as a byte order mark or a zero-width space. */
const UNSEEN = /[\p{M}\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
const NOT_ASCII = /[^\0-\x7f]/gu;
const UNEVEN_BLANKS = /\s{2,}|[^\S ]/g;

/**
 * Returns a text in the form in which texts are searched and compared: without case, accents and invisible characters,
 * each run of blanks as one. `  ÑANDÚ\u200b  azul` → `nandu azul`.
 */
export function fold(text: string): string {
  return text.replace(NOT_ASCII, foldLetter).toLowerCase().replace(UNEVEN_BLANKS, ' ').trim();
}

/**
 * Returns the form in which ids are compared that a spreadsheet, a keyboard or another program may have changed: without
 * case, accents, blanks, invisible characters and zeros in front. `００42` and ` 42` → `42`.
 */
export function twinKey(id: string): string {
  return fold(id)
    .replace(/\s/g, '')
    .replace(/^0+(?=.)/, '');
}

/** Results for letters of one UTF-16 unit: a search folds millions of the same few. */
const folded = new Map<string, string>();

function foldLetter(letter: string): string {
  const known = folded.get(letter);
  if (known !== undefined) return known;
  // Upper case first, because `ß` has the upper case `SS`, and `ı` that of `i`.
  const plain = [...letter.normalize('NFKD').replace(UNSEEN, '').toUpperCase().toLowerCase()]
    .map((each) => PLAIN[each] ?? each)
    .join('');
  if (letter.length === 1) folded.set(letter, plain);
  return plain;
}

/**
 * Number of last digits by which phone numbers are compared, because the country code may be missing: `+56 9 1234 5678`
 * is `912345678`. With eight digits, a mobile and a landline of Santiago could be equal. Of a shorter number, all
 * digits are compared.
 */
const PHONE_DIGITS = 9;
/** Fewest digits that are searched for as a part of a phone number. */
const PHONE_PART_MIN = 4;

/** Returns the digits by which a phone number is compared: `+56 9 1234-5678` → `912345678`. */
export function phoneKey(phone: string): string {
  return phone.replace(/\D/g, '').slice(-PHONE_DIGITS);
}

/** Whether a text has only digits and what phone numbers are written with. */
export function isPhoneLike(text: string): boolean {
  return /^[\d\s()+./-]+$/.test(text);
}

/** Returns a test of whether a text, or one of the phone numbers (one a line), has what a person typed. */
export function searchFor(typed: string): (text: string, phones: string) => boolean {
  const wanted = fold(typed);
  const digits = isPhoneLike(wanted) ? phoneKey(wanted) : '';
  const isPhone = digits.length >= PHONE_PART_MIN;
  return (text, phones) =>
    fold(text).includes(wanted) || (isPhone && phones.replace(/[^\d\n]/g, '').includes(digits));
}
