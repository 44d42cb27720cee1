import type { Change } from './answers.ts';
import type { Stage } from './stages.ts';
import type { Decision, OutboxTab } from './state.ts';
import type { Language } from './words/language.ts';

/** What a person can do on the page. */
export interface Actions {
  speak(language: Language): void;
  expand(stage: Stage): void;
  showOrder(orderId: string): void;
  /** With a jump the focus goes along. */
  showChanges(tab: OutboxTab, isJump?: boolean): void;
  moreChanges(): void;
  decide(decision: Decision, change: Change): void;
  /** Asks before anything is dropped. */
  askDrop(change: Change): void;
  search(text: string): void;
  moreProducts(): void;
  askKey(): void;
  /** `forGood`: also after this browser was closed. */
  useKey(key: string, forGood: boolean): void;
  forgetKey(): void;
  closeDialog(): void;
}
