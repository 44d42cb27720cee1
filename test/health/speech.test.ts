import { describe, expect, it } from 'vitest';
import { Translator } from '../../src/health/speech.ts';

const { whole, known } = (() => {
  const translator = new Translator({
    'It came {1}.': 'Llegó {1}.',
    '{1} ago': 'hace {1}',
    '{1} is empty.': '{1} está vacío.',
    'The platform refused.': 'La plataforma lo rechazó.',
    '{1}: a message that is longer than others was refused.': '{1}: fue rechazado un mensaje más largo.',
    'Why: {1}': 'Por qué: {1}',
    'Polls keep nothing: {1}': 'Las consultas no guardan nada: {1}',
    'Only {1} of {2} are free.': 'Quedan libres solo {1} de {2}.',
    '{1} of {2} are free.': 'Quedan libres {1} de {2}.',
    'See it with: {tillsync} order show {1}': 'Véalo con: {tillsync} order show {1}',
  });
  return { whole: (text: string) => translator.whole(text), known: (text: string) => translator.known(text) };
})();

describe('Translator', () => {
  it('tells a text sentence by sentence', () => {
    expect(whole('The platform refused. The body is empty.')).toBe(
      'La plataforma lo rechazó. The body está vacío.',
    );
    expect(whole('See it with: sudo tillsync order show 1005 The platform refused.')).toBe(
      'Véalo con: sudo tillsync order show 1005 La plataforma lo rechazó.',
    );
  });

  it('means the sentence that says more, where two fit', () => {
    expect(whole('Only 3 MiB of 20 GiB are free.')).toBe('Quedan libres solo 3 MiB de 20 GiB.');
  });

  it('means the sentence that is named first, where one lies within another', () => {
    expect(whole('Why: a message: a message that is longer than others was refused.')).toBe(
      'Por qué: a message: fue rechazado un mensaje más largo.',
    );
  });

  it('tells what is filled in too: words, a sentence, or several at the end', () => {
    expect(whole('It came 3m ago.')).toBe('Llegó hace 3m.');
    expect(whole('Polls keep nothing: The platform refused. The body is empty.')).toBe(
      'Las consultas no guardan nada: La plataforma lo rechazó. The body está vacío.',
    );
  });

  it('takes words that are filled in for no sentence', () => {
    expect(known('They came 3m ago and left. The platform refused.')).toBe(
      'They came 3m ago and left. La plataforma lo rechazó.',
    );
  });

  it('comes to an end with words that can be read in many ways', () => {
    expect(known(`${'Why: '.repeat(200)}x`)).toContain('Por qué: ');
    expect(known(`${'Why: A is empty. '.repeat(200)}and left`)).toContain('and left');
    expect(known('Why: '.repeat(2_000))).toBe('Why: '.repeat(2_000));
  });

  it('tells what is said of a name before it', () => {
    expect(whole('B1: The platform refused.')).toBe('B1: La plataforma lo rechazó.');
    expect(known('B1 (Centro): The platform refused. Who knows?')).toBe(
      'B1 (Centro): La plataforma lo rechazó. Who knows?',
    );
    expect(known('B1: Who knows? The platform refused.')).toBe('B1: Who knows? La plataforma lo rechazó.');
  });

  it('leaves words of others as they are', () => {
    expect(whole('Subsidiary not found. The platform refused.')).toBeUndefined();
    expect(known('Subsidiary not found. The platform refused. Try later')).toBe(
      'Subsidiary not found. La plataforma lo rechazó. Try later',
    );
    expect([whole(''), known('')]).toEqual([undefined, '']);
  });
});
