/** Tests src/link/question-gate.ts. */

import { expect, it } from 'vitest';
import { MisuseMonitor } from '../../src/link/misuse.ts';
import { QUESTION_BYTES_MAX, QuestionGate } from '../../src/link/question-gate.ts';
import { FakeClock } from '../support/fake-clock.ts';

it('misuse is told by the name of the branch, once it is more than ever happens by itself, for an hour', async () => {
  const clock = new FakeClock();
  const misuse = new MisuseMonitor(clock);
  for (let times = 0; times < 99; times++) misuse.note('B1', 'questions');
  for (let times = 0; times < 2; times++) misuse.note('B2', 'lives');
  misuse.notePlace();
  misuse.notePlace();
  expect(misuse.sentences()).toEqual([]);
  misuse.note('B1', 'questions');
  misuse.note('B2', 'lives');
  misuse.note('B3', 'length');
  misuse.notePlace();
  expect(misuse.sentences()).toEqual([
    expect.stringMatching(/^Branch B1 asks far more/),
    expect.stringMatching(/^Branch B2 .* heard more/),
    expect.stringMatching(/^Branch B3 .* longer/),
    expect.stringMatching(/^The nats-server lost/),
  ]);
  await clock.advance(3_600_000);
  expect(misuse.sentences()).toEqual([]);
});

it('misuse that is spread over days is none', async () => {
  const clock = new FakeClock();
  const misuse = new MisuseMonitor(clock);
  for (let day = 0; day < 10; day++) {
    misuse.note('B1', 'lives');
    misuse.notePlace();
    await clock.advance(3_600_000);
  }
  expect(misuse.sentences()).toEqual([]);
});

it('a question gate refuses some of a flood and drops the rest, and no other branch waits for it', async () => {
  const clock = new FakeClock();
  const gate = new QuestionGate(clock);
  const entries = Array.from({ length: 1_000 }, () => {
    const entry = gate.enter('B1', 100);
    if (entry === 'admitted') gate.leave('B1');
    return entry;
  });
  const count = (which: string) => entries.filter((entry) => entry === which).length;
  expect(count('admitted')).toBeGreaterThan(50);
  expect(count('admitted')).toBeLessThan(70);
  expect(count('refused')).toBe(20);
  expect(gate.enter('B2', 100)).toBe('admitted');
  await clock.advance(5_000);
  expect(gate.enter('B1', 100)).toBe('admitted');
  expect(gate.enter('B3', QUESTION_BYTES_MAX + 1)).toBe('refused');
});
