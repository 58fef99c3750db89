#include "decoder/model/shadow.h"

#include <algorithm>
#include <cstring>

namespace tg::model {
namespace {

constexpr uint64_t kPage = Shadow::kPage;
constexpr size_t kMaxExtents = 1u << 20;
constexpr uint64_t kExtentShare = 256;  // of the budget, one for so many bytes

// Last byte of [offset, offset + size), cut at 2^64; size > 0.
uint64_t LastByte(uint64_t offset, uint64_t size) {
  return size - 1 > ~0ull - offset ? ~0ull : offset + (size - 1);
}

bool GetBit(const std::array<uint64_t, kPage / 64>& bits, size_t i) {
  return (bits[i / 64] >> (i % 64) & 1) != 0;
}

// Sets or clears [begin, end).
void PutBits(std::array<uint64_t, kPage / 64>& bits, size_t begin, size_t end, bool value) {
  while (begin < end) {
    const size_t in_word = begin % 64;
    const size_t count = std::min(end - begin, 64 - in_word);
    const uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << in_word;
    if (value) {
      bits[begin / 64] |= mask;
    } else {
      bits[begin / 64] &= ~mask;
    }
    begin += count;
  }
}

}  // namespace

const Shadow::Page* Shadow::FindPage(uint64_t number) const {
  if (number == cached_number_) return cached_;
  const uint32_t found = index_.Find(number);
  cached_number_ = number;
  cached_ = found == FlatIndex::kNone ? nullptr : &pages_[found];
  return cached_;
}

const Shadow::Extent* Shadow::ExtentAt(uint64_t offset) const {
  auto after = extents_.upper_bound(offset);
  if (after == extents_.begin()) return nullptr;
  --after;
  return after->second.last >= offset ? &after->second : nullptr;
}

// The page, taking over what extents say of it; nullptr: there is no memory for it.
Shadow::Page* Shadow::MakePage(uint64_t number) {
  if (number == cached_number_ && cached_) return const_cast<Page*>(cached_);
  if (const Page* found = FindPage(number)) return const_cast<Page*>(found);
  writing_ = kNoPage;  // whatever was written is; Take may make its place free
  if (!Take(kPageCost)) return nullptr;
  uint32_t position = static_cast<uint32_t>(pages_.size());
  if (free_.empty()) {
    pages_.emplace_back();
  } else {
    position = free_.back();
    free_.pop_back();
  }
  index_.Add(number, position);
  Page& page = pages_[position];
  page.number = number;
  writing_ = number;
  cached_number_ = number;
  cached_ = &page;

  const uint64_t first = number * kPage;
  const uint64_t last = first + (kPage - 1);
  auto extent = extents_.upper_bound(last);
  bool any = false;
  while (extent != extents_.begin()) {
    --extent;
    if (extent->second.last < first) break;
    if (!any && extent->first <= first && extent->second.last >= last) {
      page.tag = extent->second.tag;
      if (!extent->second.zeros) {
        page.known = std::make_unique<std::array<uint64_t, kPage / 64>>();
      }
      return &page;
    }
    if (!any) page.known = std::make_unique<std::array<uint64_t, kPage / 64>>();
    any = true;
    const size_t begin = std::max(extent->first, first) - first;
    const size_t end = std::min(extent->second.last, last) - first + 1;
    SetTags(page, begin, end, extent->second.tag);
    if (extent->second.zeros) SetKnown(page, begin, end, true);
  }
  if (!any) page.known = std::make_unique<std::array<uint64_t, kPage / 64>>();
  return &page;
}

// What was to be put into a page that cannot be made. Nothing older may speak for it either.
void Shadow::Drop(uint64_t number, uint64_t bytes) {
  dropped_bytes_ += bytes;
  BoundExtents();
  CutExtents(number * kPage, number * kPage + (kPage - 1));
}

bool Shadow::GiveData(Page& page) {
  if (page.data) return true;
  if (data_bytes_ + kPage > max_bytes_ || !Take(kPage)) return false;
  page.data = std::make_unique<std::array<uint8_t, kPage>>();
  data_bytes_ += kPage;
  return true;
}

void Shadow::DropTags(Page& page) {
  if (!page.tags) return;
  page.tags.reset();
  held_.Give(kTagsCost);
}

void Shadow::SetTags(Page& page, size_t begin, size_t end, Tag tag) {
  if (begin == 0 && end == kPage) {
    DropTags(page);
    page.tag = tag;
    return;
  }
  if (!page.tags) {
    if (page.tag == tag) return;
    if (!Take(kTagsCost)) {
      page.tag = tag;
      return;
    }
    page.tags = std::make_unique<std::array<Tag, kPage / 8>>();
    page.tags->fill(page.tag);
  }
  for (size_t word = begin / 8; word <= (end - 1) / 8; ++word) (*page.tags)[word] = tag;
}

void Shadow::SetKnown(Page& page, size_t begin, size_t end, bool known) {
  if (known) {
    if (!page.known) return;
    if (begin == 0 && end == kPage) {
      page.known.reset();
      return;
    }
    PutBits(*page.known, begin, end, true);
    return;
  }
  if (!page.known) {
    page.known = std::make_unique<std::array<uint64_t, kPage / 64>>();
    page.known->fill(~0ull);
  }
  PutBits(*page.known, begin, end, false);
}

void Shadow::StoreInPage(uint64_t number, size_t begin, std::span<const uint8_t> data, Tag tag,
                         bool observe) {
  Page* const made = MakePage(number);
  if (!made) return Drop(number, data.size());
  writing_ = number;
  Page& page = *made;
  const size_t end = begin + data.size();
  if (observe) {
    // Bytes that were known and are the same keep their origin.
    const auto same = [&](size_t i) {
      if (page.known && !GetBit(*page.known, i)) return false;
      return (page.data ? (*page.data)[i] : 0) == data[i - begin];
    };
    size_t from = begin;
    while (from < end) {
      if (same(from)) {
        ++from;
        continue;
      }
      size_t to = std::min(end, (from / 8 + 1) * 8);
      StoreInPage(number, from, data.subspan(from - begin, to - from), tag, false);
      from = to;
    }
    return;
  }
  SetTags(page, begin, end, tag);
  const bool zeros =
      !page.data && std::all_of(data.begin(), data.end(), [](uint8_t b) { return b == 0; });
  if (!zeros) {
    if (!GiveData(page)) {
      dropped_bytes_ += data.size();
      SetKnown(page, begin, end, false);
      return;
    }
    std::memcpy(page.data->data() + begin, data.data(), data.size());
  }
  SetKnown(page, begin, end, true);
}

void Shadow::Store(uint64_t offset, std::span<const uint8_t> data, Tag tag, bool observe) {
  if (data.empty()) return;
  if (data.size() - 1 > ~0ull - offset) data = data.first(~0ull - offset + 1);
  while (!data.empty()) {
    const size_t begin = offset % kPage;
    const size_t count = std::min<size_t>(data.size(), kPage - begin);
    StoreInPage(offset / kPage, begin, data.first(count), tag, observe);
    data = data.subspan(count);
    offset += count;
  }
}

void Shadow::Write(uint64_t offset, std::span<const uint8_t> data, Provenance by) {
  Store(offset, data, Pack(by), false);
}

void Shadow::Observe(uint64_t offset, std::span<const uint8_t> data, Provenance by) {
  Store(offset, data, Pack(by), true);
}

// So many pieces are no driver's. What is not known of is the same as never observed to a reader:
// such go first.
void Shadow::BoundExtents() {
  const uint64_t most = std::min<uint64_t>(kMaxExtents, held_.limit() / kExtentShare);
  if (extents_.size() < most) return;
  std::erase_if(extents_, [](const auto& entry) { return !entry.second.zeros; });
  if (extents_.size() > most / 2) extents_.clear();
}

// Removes what extents say of [first, last].
void Shadow::CutExtents(uint64_t first, uint64_t last) {
  auto at = extents_.upper_bound(first);
  if (at != extents_.begin()) {
    auto before = std::prev(at);
    if (before->second.last >= first) {
      Extent tail = before->second;
      if (before->first == first) {
        at = extents_.erase(before);
      } else {
        before->second.last = first - 1;
      }
      if (tail.last > last) extents_[last + 1] = tail;
    }
  }
  at = extents_.lower_bound(first);
  while (at != extents_.end() && at->first <= last) {
    Extent tail = at->second;
    at = extents_.erase(at);
    if (tail.last > last) {
      extents_[last + 1] = tail;
      break;
    }
  }
}

void Shadow::ForgetPage(uint64_t number) {
  const uint32_t position = index_.Find(number);
  if (position == FlatIndex::kNone) return;
  if (pages_[position].data) {
    data_bytes_ -= kPage;
    held_.Give(kPage);
  }
  DropTags(pages_[position]);
  held_.Give(kPageCost);
  pages_[position] = Page();
  index_.Erase(number);
  free_.push_back(position);
}

void Shadow::Forget(uint64_t bytes) {
  const uint64_t enough = held_.bytes() - std::min(held_.bytes(), bytes);
  for (size_t looked = 0; looked < (kMaxReads + 1) * pages_.size() && held_.bytes() > enough;
       looked++) {
    if (next_to_forget_ >= pages_.size()) next_to_forget_ = 0;
    const Page& page = pages_[next_to_forget_++];
    if (page.number == kNoPage || page.number == writing_) continue;
    if (page.reads > 0) {
      page.reads--;
      continue;
    }
    const uint64_t first = page.number * kPage;
    ForgetPage(page.number);
    BoundExtents();
    CutExtents(first, first + (kPage - 1));  // nothing older may speak for it
  }
  cached_number_ = kNoPage;
  cached_ = nullptr;
}

void Shadow::FillInPage(uint64_t number, size_t begin, size_t end, bool zeros, Tag tag) {
  Page* const made = MakePage(number);
  if (!made) return Drop(number, end - begin);
  writing_ = number;
  Page& page = *made;
  SetTags(page, begin, end, tag);
  if (begin == 0 && end == kPage) {
    if (page.data) {
      page.data.reset();
      data_bytes_ -= kPage;
      held_.Give(kPage);
    }
  } else if (page.data) {
    std::memset(page.data->data() + begin, 0, end - begin);
  }
  SetKnown(page, begin, end, zeros);
}

void Shadow::Fill(uint64_t offset, uint64_t size, bool zeros, Tag tag) {
  if (size == 0) return;
  const uint64_t last = LastByte(offset, size);
  // Whole pages in the middle become one extent; the rest is done page by page.
  const uint64_t whole_first = offset / kPage + (offset % kPage != 0 ? 1 : 0);
  const bool last_is_whole = last % kPage == kPage - 1;
  const uint64_t whole_end = last / kPage + (last_is_whole ? 1 : 0);  // one past
  if (whole_first >= whole_end || whole_end - whole_first <= 4) {
    for (uint64_t at = offset;;) {
      const uint64_t page_last = at | (kPage - 1);
      const uint64_t stop = std::min(page_last, last);
      FillInPage(at / kPage, at % kPage, stop % kPage + 1, zeros, tag);
      if (stop == last) break;
      at = stop + 1;
    }
    return;
  }
  if (offset % kPage != 0) FillInPage(offset / kPage, offset % kPage, kPage, zeros, tag);
  if (!last_is_whole) FillInPage(last / kPage, 0, last % kPage + 1, zeros, tag);

  if (whole_end - whole_first < index_.size()) {
    for (uint64_t n = whole_first; n < whole_end; ++n) ForgetPage(n);
  } else {
    std::vector<uint64_t> inside;
    index_.ForEach([&](uint64_t number, uint32_t) {
      if (number >= whole_first && number < whole_end) inside.push_back(number);
    });
    for (const uint64_t number : inside) ForgetPage(number);
  }
  cached_number_ = kNoPage;
  cached_ = nullptr;
  const uint64_t first_byte = whole_first * kPage;
  const uint64_t last_byte = (whole_end - 1) * kPage + (kPage - 1);
  CutExtents(first_byte, last_byte);
  BoundExtents();
  extents_[first_byte] = {last_byte, zeros, tag};
}

void Shadow::WriteZeros(uint64_t offset, uint64_t size, Provenance by) {
  Fill(offset, size, true, Pack(by));
}

void Shadow::WriteUnknown(uint64_t offset, uint64_t size, Provenance by) {
  Fill(offset, size, false, Pack(by));
}

bool Shadow::Read(uint64_t offset, std::span<uint8_t> out) const {
  bool all = true;
  while (!out.empty()) {
    const size_t begin = offset % kPage;
    const size_t count = std::min<size_t>(out.size(), kPage - begin);
    if (const Page* page = FindPage(offset / kPage)) {
      if (page->reads < kMaxReads) page->reads++;
      if (!page->known) {
        if (page->data) {
          std::memcpy(out.data(), page->data->data() + begin, count);
        } else {
          std::memset(out.data(), 0, count);
        }
      } else {
        for (size_t i = 0; i < count; ++i) {
          if (GetBit(*page->known, begin + i)) {
            out[i] = page->data ? (*page->data)[begin + i] : 0;
          } else {
            all = false;
          }
        }
      }
    } else {
      const Extent* extent = ExtentAt(offset);
      if (extent && extent->zeros) {
        std::memset(out.data(), 0, count);
      } else {
        all = false;
      }
    }
    out = out.subspan(count);
    if (!out.empty() && offset > ~0ull - count) return false;
    offset += count;
  }
  return all;
}

uint64_t Shadow::KnownBytes(uint64_t offset, uint64_t limit) const {
  uint64_t known = 0;
  while (known < limit) {
    const size_t begin = offset % kPage;
    const uint64_t count = std::min<uint64_t>(limit - known, kPage - begin);
    if (const Page* page = FindPage(offset / kPage)) {
      if (page->known) {
        for (size_t i = 0; i < count; ++i) {
          if (!GetBit(*page->known, begin + i)) return known + i;
        }
      }
      known += count;
      if (offset > ~0ull - count) return known;
      offset += count;
    } else {
      const Extent* extent = ExtentAt(offset);
      if (!extent || !extent->zeros) return known;
      known += count;
      if (offset > ~0ull - count) return known;
      offset += count;
    }
  }
  return known;
}

std::optional<uint32_t> Shadow::U32(uint64_t offset) const {
  uint32_t value = 0;
  std::array<uint8_t, 4> bytes{};
  if (!Read(offset, bytes)) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::optional<uint64_t> Shadow::U64(uint64_t offset) const {
  uint64_t value = 0;
  std::array<uint8_t, 8> bytes{};
  if (!Read(offset, bytes)) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Provenance Shadow::OriginOf(uint64_t offset) const {
  if (const Page* page = FindPage(offset / kPage)) {
    return Unpack(page->tags ? (*page->tags)[offset % kPage / 8] : page->tag);
  }
  const Extent* extent = ExtentAt(offset);
  return extent ? Unpack(extent->tag) : Provenance{};
}

std::vector<Shadow::Range> Shadow::Touched(size_t limit) const {
  std::vector<Range> ranges;
  ranges.reserve(index_.size() + extents_.size());
  index_.ForEach([&](uint64_t number, uint32_t) {
    ranges.push_back({number * kPage, number * kPage + kPage});
  });
  for (const auto& [first, extent] : extents_) ranges.push_back({first, extent.last + 1});
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else if (merged.size() < limit) {
      merged.push_back(range);
    } else {
      break;
    }
  }
  return merged;
}

}  // namespace tg::model
