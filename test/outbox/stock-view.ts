import type Database from 'better-sqlite3';
import { StockLedger } from '../../src/outbox/ledger/stock-ledger.ts';
import { judgeStock } from '../../src/outbox/ledger/stock-rule.ts';

type Numbers = Omit<ReturnType<typeof judgeStock>, 'reservedBy'>;

const VIEW = `
  SELECT reserved_qty AS reservedQty, unheard_qty AS unheardQty, wanted_qty AS wantedQty, ordered_qty AS orderedQty,
    expected_qty AS expectedQty
  FROM _stock_ledger WHERE sku = ? AND subsidiary_id = ?`;

/** Returns the numbers of a stock as the view computes them. */
export function viewOf(db: Database.Database, sku: string, subsidiaryId: string): Numbers {
  const row = db.prepare<[string, string], Numbers>(VIEW).get(sku, subsidiaryId);
  if (!row) throw new Error(`${sku} is not counted`);
  // The view rounds only what it compares.
  const entries = Object.entries(row).map(([name, qty]) => [
    name,
    qty === null ? null : Number(qty.toFixed(9)),
  ]);
  return Object.fromEntries(entries) as Numbers;
}

/** Returns the numbers of a stock by the rule. */
export function ruleOf(facts: Parameters<typeof judgeStock>[0]): Numbers {
  const { reservedBy: _, ...numbers } = judgeStock(facts);
  return numbers;
}

/** Returns the first stock of which the view and the rule say different numbers; null if there is none. */
export function viewFault(db: Database.Database): string | null {
  const ledger = new StockLedger(db);
  const stocks = db.prepare<[], [string, string]>('SELECT sku, subsidiary_id FROM _stock_counts').raw().all();
  for (const [sku, subsidiaryId] of stocks) {
    const facts = ledger.factsOf({ sku, subsidiaryId });
    if (!facts) return `of ${sku} nothing is known`;
    const [view, rule] = [viewOf(db, sku, subsidiaryId), ruleOf(facts)].map((each) =>
      JSON.stringify(Object.entries(each).sort()),
    );
    if (view !== rule) return `of ${sku} the view says ${view}, and the rule ${rule}`;
  }
  return null;
}
